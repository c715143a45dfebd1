"""Means of what steps save: what they learn from a table, how they are stored, and what they forecast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.effects.learning_means import (
    MOST_LOST,
    MeansLearner,
    chains_of,
    learnt_means,
    means_by_kind,
    means_of,
    stated_steps,
)
from agents.effects.means_file import SHIPPED, load_means, save_means
from envs.window import WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.latency.device import machine_kind, processor_kind
from graph_rewrite.rules.registry import families
from tests.agents.effects.planted_savings import on_device, planted, saves


def test_what_rules_save_is_learnt(table: WindowTable) -> None:
    means = learnt_means(planted(table))
    arrays, chains = table.arrays, chains_of(table)
    roots = arrays["state_depth"][stated_steps(table).states] == 0
    counts = np.bincount(arrays["step_rule"][roots], minlength=len(table.rules))
    often = [step for step in np.flatnonzero(roots) if counts[arrays["step_rule"][step]] >= 20]
    assert len(often) > 200
    for step in often[::10]:
        rules, names, shapes = chains[arrays["step_next"][step]]
        found = means.forecast(rules, names, table.classes[max(shapes, 0)], 0.0)
        assert found is not None
        assert found.mean == pytest.approx(saves(int(arrays["step_rule"][step])), abs=0.06)
        assert found.labels >= 10
        assert 0.0 < found.deviation < 0.5
        # Whatever follows loses.
        assert found.own is not None
        assert found.own.mean == pytest.approx(found.mean, abs=1e-9)


def test_what_a_step_leads_to_is_no_less_than_what_it_saves_itself(table: WindowTable) -> None:
    told, arrays = stated_steps(table), table.arrays
    timed = np.isfinite(told.gains)
    assert (told.gains[timed] >= told.own[timed]).all()
    goes_on = np.diff(arrays["step_start"])[arrays["step_next"]] > 0
    assert (told.gains == told.own)[timed & ~goes_on].all()
    assert (told.gains > told.own)[timed & goes_on].any()
    means = learnt_means(table)
    rules, names, shapes = chains_of(table)[int(arrays["step_next"][np.flatnonzero(told.gains > told.own + 0.05)[0]])]
    found = means.forecast(rules, names, table.classes[max(shapes, 0)], 0.0)
    assert found is not None
    assert found.own is not None
    assert found.mean > found.own.mean


def test_estimates_count_as_much_as_they_tell(table: WindowTable) -> None:
    random = np.random.default_rng(0)
    arrays = {**table.arrays, "step_guess": random.uniform(-0.5, 0.5, table.steps).astype(np.float32)}
    told = learnt_means(planted(replace(table, arrays=arrays), guessed=0.5))
    assert told.best.line[1] == pytest.approx(0.5, abs=0.05)
    assert learnt_means(planted(replace(table, arrays=arrays))).best.line[1] == pytest.approx(0.0, abs=0.05)
    assert told.on_line(9.0) == told.on_line(0.5)


def test_precise_timings_outweigh_others(table: WindowTable) -> None:
    """Half of a rule's timings say one thing precisely, and half another thing roughly: the first is believed."""
    rule = int(np.bincount(table.arrays["step_rule"]).argmax())
    arrays = {name: array.copy() for name, array in planted(table).arrays.items()}
    mine = np.flatnonzero(arrays["step_rule"] == rule)
    roots = np.isin(stated_steps(table).states, arrays["window_root"])
    mine = mine[roots[mine]]
    arrays["step_share"][mine], arrays["step_half"][mine] = 0.3, 0.01
    rough = mine[::2]
    arrays["step_share"][rough], arrays["step_half"][rough] = -0.3, 0.5
    found = learnt_means(replace(table, arrays=arrays), set(arrays["state_window"][stated_steps(table).states[mine]]))
    name, family = table.rules[rule], table.families[arrays["step_family"][mine[0]]]
    forecast = found.forecast((name,), (family,), "nothing like that", 0.0)
    assert forecast is not None
    assert forecast.mean > 0.2


def test_what_was_timed_in_the_very_window_counts_more_than_what_was_in_alike_ones(table: WindowTable) -> None:
    told, planned = stated_steps(table), planted(table)
    rule = int(np.bincount(table.arrays["step_rule"]).argmax())
    arrays = {name: array.copy() for name, array in planned.arrays.items()}
    roots = np.isin(told.states, arrays["window_root"])
    (step, *others) = (int(one) for one in np.flatnonzero((arrays["step_rule"] == rule) & roots))
    arrays["step_share"][step], arrays["step_half"][step] = 0.5, 0.01
    rules, names, shapes = chains_of(table)[int(arrays["step_next"][step])]
    means = learnt_means(replace(planned, arrays=arrays))

    def own(window: str) -> float:
        found = means.forecast(rules, names, table.classes[shapes], 0.0, window)
        assert found is not None
        assert found.own is not None
        return found.own.mean

    fingerprints = [table.windows[arrays["state_window"][told.states[one]]].fingerprint for one in (step, others[-1])]
    assert fingerprints[0] != fingerprints[1]
    assert own(fingerprints[0]) > own("no window of the table") + 0.1
    assert own("no window of the table") == own("")


def test_only_what_was_timed_on_both_sides_counts(table: WindowTable) -> None:
    first = int(np.flatnonzero(table.arrays["state_depth"][stated_steps(table).states] == 1)[0])
    before = int(np.flatnonzero(table.arrays["step_next"] == stated_steps(table).states[first])[0])
    measured = table.arrays["step_measured"].copy()
    measured[before] = False
    gains = stated_steps(replace(table, arrays={**table.arrays, "step_measured": measured})).gains
    assert np.isnan(gains[[before, first]]).all()
    assert np.isnan(gains).sum() >= 2
    whole = stated_steps(table).gains
    assert whole.min() >= -MOST_LOST


def test_windows_that_are_left_out_teach_nothing(table: WindowTable) -> None:
    rule = table.rules[int(np.bincount(table.arrays["step_rule"]).argmax())]
    windows = {
        int(table.arrays["state_window"][stated_steps(table).states[step]])
        for step in np.flatnonzero(table.arrays["step_rule"] == table.rules.index(rule))
    }
    others = set(range(len(table.windows))) - windows
    means = learnt_means(table, others)
    assert means.forecast((rule,), ("algebra",), "", 0.0) is None
    assert learnt_means(table).forecast((rule,), ("algebra",), "", 0.0) is not None


def test_means_are_read_as_they_were_written(table: WindowTable, tmp_path: Path) -> None:
    means = learnt_means(table)
    save_means(tmp_path / "one.json", means)
    again = load_means(tmp_path / "one.json")
    save_means(tmp_path / "two.json", again)
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    for rules, names, shapes in chains_of(table)[1:200:7]:
        if rules:
            one, other = (model.forecast(rules, names, table.classes[max(shapes, 0)], 0.1) for model in (means, again))
            assert one is not None
            assert other is not None
            assert other.mean == pytest.approx(one.mean, abs=1e-3)
            assert one.own is not None
            assert other.own == pytest.approx(one.own, abs=1e-3)


A, B = "One, cpu family 6, model 1, stepping 2 [avx2]", "One, cpu family 6, model 2, stepping 2 [avx2]"


def test_what_a_kind_of_processor_saves_is_learnt_from_it(table: WindowTable, tmp_path: Path) -> None:
    parts = [(MeansLearner(on_device(table, device, gain)), None) for device, gain in ((A, 0.1), (B, -0.1))]
    means = means_of(parts)
    kinds = means_by_kind(parts, means)
    assert sorted(kinds) == sorted(map(processor_kind, (A, B)))
    save_means(tmp_path / "m.json", means, kinds)
    chains, often = chains_of(table), int(np.bincount(table.arrays["step_rule"]).argmax())
    rules, names, shapes = next(chain for chain in chains if chain[0] == (table.rules[often],))
    asked = rules, names, table.classes[shapes], 0.0
    found = {}
    for kind in ("", *kinds, "no such kind"):
        forecast = load_means(tmp_path / "m.json", kind).forecast(*asked)
        assert forecast is not None
        assert forecast.own is not None
        found[kind] = forecast.own.mean
    assert found["no such kind"] == found[""]
    openvino = {machine_kind("openvino", A): kinds[processor_kind(A)], **kinds}
    save_means(tmp_path / "m.json.xz", means, openvino)
    for kind in (machine_kind("openvino", A), machine_kind("openvino", "an unknown processor []")):
        assert load_means(tmp_path / "m.json.xz", kind) == load_means(tmp_path / "m.json", processor_kind(A))
    assert found[processor_kind(A)] == pytest.approx(found[""] + 0.1, abs=0.02)
    assert found[processor_kind(B)] == pytest.approx(found[""] - 0.1, abs=0.02)


def test_windows_of_unknown_machines_teach_the_means_of_all_alone(table: WindowTable) -> None:
    parts = [(MeansLearner(on_device(table, "", 0.0)), None), (MeansLearner(on_device(table, A, 0.0)), [])]
    means = means_of(parts)
    rule = table.rules[int(np.bincount(table.arrays["step_rule"]).argmax())]
    assert means.forecast((rule,), ("algebra",), "", 0.0) is not None
    (none,) = means_by_kind(parts, means).values()
    assert none.labels(["", rule, "", f"... > {rule}"]) == 0.0


@pytest.mark.parametrize(("device", "kind"), [
    ("AMD EPYC, cpu family 25, model 17, stepping 1 [avx2 fma]", "cpu family 25 [avx2 fma]"),
    ("Intel(R) Xeon(R) 8480+, cpu family 6, model 143, stepping 8 [avx2]", "cpu family 6, model 143 [avx2]"),
    ("H100, 550.1 on AMD EPYC, cpu family 26, model 2, stepping 1 [fma]", "cpu family 26 [fma]"),
    ("CPU implementer 0x41, CPU part 0xd4f [asimd]", "CPU part 0xd4f [asimd]"),
    ("Apple M3 []", "Apple M3 []"),
])  # fmt: skip
def test_a_kind_of_processor_has_no_stepping_and_a_model_only_of_intel_s(device: str, kind: str) -> None:
    assert processor_kind(device) == kind


def test_a_kind_of_machine_is_the_device_where_there_is_one() -> None:
    assert machine_kind("cpu", A) == processor_kind(A)
    assert machine_kind("openvino", A) == f"openvino on {processor_kind(A)}"
    assert machine_kind("cuda", f"NVIDIA H100, 580.1 on {A}") == "cuda on NVIDIA H100"


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"format":"rewritegym.step-means","version":99}'])
def test_what_holds_no_means_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        for name in ("m.json", "m.json.xz"):
            (tmp_path / name).write_text(text)
    for name in ("m.json", "m.json.xz"):
        with pytest.raises(UserError, match="means"):
            load_means(tmp_path / name)


def test_a_file_of_means_that_was_cut_off_is_refused(table: WindowTable, tmp_path: Path) -> None:
    parts = [(MeansLearner(on_device(table, device, 0.0)), None) for device in (A, B)]
    means = means_of(parts)
    whole, cut = tmp_path / "m.json", tmp_path / "cut.json"
    save_means(whole, means, means_by_kind(parts, means))
    lines = whole.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:2]))
    first, second = sorted((processor_kind(A), processor_kind(B)))
    assert load_means(cut, first) == load_means(whole, first)
    assert load_means(cut) == load_means(whole)
    with pytest.raises(UserError, match=r"cut\.json: this holds no means of steps"):
        load_means(cut, second)


def test_the_means_that_ship_know_most_rules() -> None:
    means = load_means(SHIPPED)
    known = [
        rule.name
        for family, rules in families().items()
        for rule in rules
        if means.forecast((rule.name,), (family,), "", 0.0) is not None
    ]
    assert len(known) > 100
    assert means.forecast(("NoSuchRule",), ("algebra",), "", 0.0) is None
    assert SHIPPED.stat().st_size < 2 << 20


def test_learnt_steps_are_named_as_searches_name_them(table: WindowTable) -> None:
    """So a search that times one of them again puts it in the place of what was learnt."""
    found = MeansLearner(on_device(table, A, 0.1)).timed_steps(machine_kind("cpu", A))
    assert len(found) > 100
    assert all(name == one.names[0] for name, one in found.items())
