"""Checkpoints: round trip, and refusals that name the file."""

import json
from pathlib import Path

import pytest
import torch

from agents.core.config import EncoderConfig, EnvConfig
from agents.ppo.checkpoint import adapt_weights, load_checkpoint, load_optimizer, save_checkpoint
from agents.ppo.description import CheckpointError, PolicyDescription, check_vocabulary


@pytest.fixture
def description() -> PolicyDescription:
    return PolicyDescription(
        rules=("A", "B"), operators=("::Add",), features={"node": 3, "candidate": 2, "global": 1},
        encoder=EncoderConfig(hidden=8), head_layers=(16, 4), env=EnvConfig(horizon=5), trained_on="zoo://bert",
    )  # fmt: skip


def test_round_trip_of_weights_description_and_optimizer(tmp_path: Path, description: PolicyDescription) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_checkpoint(tmp_path, description, layer.state_dict(), optimizer.state_dict())
    loaded = load_checkpoint(tmp_path)
    assert loaded.description == description
    assert all(torch.equal(loaded.weights[name], tensor) for name, tensor in layer.state_dict().items())
    other = torch.optim.Adam(layer.parameters())
    assert load_optimizer(tmp_path, other)
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(other.state_dict()["state"][index][name], torch.as_tensor(value))


def test_missing_truncated_and_foreign_files_are_refused(tmp_path: Path, description: PolicyDescription) -> None:
    with pytest.raises(CheckpointError, match=r"policy\.json is missing"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, description, {"w": torch.ones(1000)})
    weights = tmp_path / "policy.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="is it complete"):
        load_checkpoint(tmp_path)
    weights.write_bytes(whole)
    values = json.loads((tmp_path / "policy.json").read_text())
    (tmp_path / "policy.json").write_text(json.dumps({**values, "format": 99}))
    with pytest.raises(CheckpointError, match="another format"):
        load_checkpoint(tmp_path)
    (tmp_path / "policy.json").write_text("{")
    with pytest.raises(CheckpointError, match="not a policy description"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("encoder", "hidden"), 10**9, "encoder.hidden must be a whole number up to 4096, not 1000000000"),
        (("encoder", "hidden"), "64", "encoder.hidden must be int"),
        (("encoder", "depth"), 1, "no setting encoder.depth"),
        (("head_layers",), [64] * 10**6, "number of head_layers must be a whole number up to 32, not 1000000"),
        (("head_layers",), [2**40], "width 0 of head_layers"),
        (("head_layers",), None, "not a policy description"),
        (("env", "max_nodes"), 10**12, "env.max_nodes"),
        (("env", "horizon"), -1, "env.horizon"),
        (("rules",), 7, "not a policy description"),
        (("trained_in",), "rooms", "trained_in must be one of models, windows, not 'rooms'"),
        (("left_out",), 7, "not a policy description"),
    ],
)
def test_what_nobody_trains_is_refused_before_any_memory_is_taken(
    tmp_path: Path, description: PolicyDescription, where: tuple[str, ...], value: object, message: str
) -> None:
    save_checkpoint(tmp_path, description, {"w": torch.ones(2)})
    values = json.loads((tmp_path / "policy.json").read_text())
    inner = values
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    (tmp_path / "policy.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=r"policy\.json: not a policy description") as refused:
        load_checkpoint(tmp_path)
    assert message in str(refused.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "7", "[1]", "\udcff"])
def test_any_other_json_is_refused(tmp_path: Path, description: PolicyDescription, text: str) -> None:
    save_checkpoint(tmp_path, description, {"w": torch.ones(2)})
    (tmp_path / "policy.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=r"policy\.json: not a policy description"):
        load_checkpoint(tmp_path)


def test_a_failed_write_leaves_the_old_checkpoint(
    tmp_path: Path, description: PolicyDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, description, {"w": torch.zeros(4)})

    def full_disk(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agents.ppo.checkpoint.save_file", full_disk)
    with pytest.raises(OSError, match="No space"):
        save_checkpoint(tmp_path, description, {"w": torch.ones(4)})
    assert torch.equal(load_checkpoint(tmp_path).weights["w"], torch.zeros(4))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["policy.json", "policy.safetensors"]


def test_what_the_policy_knows_must_be_there(description: PolicyDescription) -> None:
    check_vocabulary(description, ("A", "B", "C"), ("::Add", "::Mul"))
    with pytest.raises(CheckpointError, match="rules that are not there: B"):
        check_vocabulary(description, ("A", "C"), ("::Add",))
    with pytest.raises(CheckpointError, match="operators that are not there: ::Add"):
        check_vocabulary(description, ("A", "B"), ("::Mul",))


def test_embeddings_follow_their_names(tmp_path: Path, description: PolicyDescription) -> None:
    table = torch.arange(6.0).reshape(2, 3) + 1
    save_checkpoint(tmp_path, description, {"features_extractor.rule.weight": table})
    adapted = adapt_weights(load_checkpoint(tmp_path), ("B", "new", "A"), ("::Add",))
    rows = adapted["features_extractor.rule.weight"]
    assert torch.equal(rows[0], table[1])
    assert torch.equal(rows[2], table[0])
    assert not rows[1].any()
