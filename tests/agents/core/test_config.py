"""Configuration: layering, strictness, and messages that say what to do."""

from pathlib import Path

import pytest

from agents.core.config import Config, ConfigError, load_config, model_uri


def test_model_file_goes_over_default_and_settings_go_over_both() -> None:
    config = load_config("bert", settings=["model.layers=6", "ppo.learning_rate=1e-4", "env.horizon=7"])
    assert config.model["layers"] == 6
    assert config.model["seq_len"] == 128
    assert config.training.model == {"layers": 2, "vocab": 1000}
    assert config.ppo.learning_rate == 1e-4
    assert config.env.horizon == 7


def test_paper_configuration_holds_the_published_hyper_parameters() -> None:
    config = load_config(path="paper")
    assert (config.ppo.learning_rate, config.ppo.vf_coef, config.ppo.ent_coef) == (5e-4, 0.5, 0.01)
    assert (config.ppo.batch_size, config.encoder.layers, config.env.feedback_every) == (16, 5, 5)
    assert config.ppo.head_layers == (256, 64)
    assert config.ppo.n_steps == 10 * config.env.horizon


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ppo.learning_rat=1", "did you mean ppo.learning_rate"),
        ("ppo.n_steps=many", "ppo.n_steps must be int"),
        ("env=3", "env is a group"),
        ("horizon", "write it as key=value"),
        ("encoder.residual=1", "encoder.residual must be bool"),
        ("ppo.n_steps=true", "ppo.n_steps must be int"),
        ("ppo.batch_size=0", "ppo.batch_size must be 1 or more, not 0"),
        ("training.n_envs=0", "training.n_envs must be 1 or more, not 0"),
    ],
)
def test_bad_settings_say_what_is_wrong(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("bert", settings=[setting])


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("ppo: [unclosed")
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        load_config("bert", bad)
    with pytest.raises(ConfigError, match="no such file"):
        load_config("bert", tmp_path / "none.yaml")
    bad.write_text("- a list")
    with pytest.raises(ConfigError, match="must hold a mapping"):
        load_config("bert", bad)


def test_every_model_of_the_zoo_has_a_configuration_that_it_accepts() -> None:
    from agents.core.paths import configs
    from graph_rewrite import zoo
    from graph_rewrite.zoo.registry import configure

    for name in zoo.names():
        assert (configs() / f"{name}.yaml").is_file(), name
        config = load_config(name)
        configure(name, config.model)
        configure(name, {**config.model, **config.training.model})


def test_every_shipped_configuration_loads() -> None:
    from agents.core.paths import configs

    for path in configs().glob("*.yaml"):
        assert isinstance(load_config(path=path), Config)


def test_model_uris() -> None:
    assert model_uri("bert", {}) == "zoo://bert"
    assert model_uri("bert", {"seq_len": 64, "layers": 2}) == "zoo://bert?layers=2&seq_len=64"
    assert model_uri("zoo://bert?layers=3", {"layers": 2}) == "zoo://bert?layers=2"
    assert model_uri("file:a/model.onnx", {"layers": 2}) == "file:a/model.onnx"


def test_parameters_in_the_uri_go_over_the_files_and_settings_go_over_them() -> None:
    assert load_config("zoo://bert?layers=2&seq_len=64").model == {"layers": 2, "seq_len": 64}
    config = load_config("zoo://bert?layers=2", settings=["model.layers=3"])
    assert model_uri("zoo://bert?layers=2", config.model) == "zoo://bert?layers=3&seq_len=128"
    with pytest.raises(ConfigError, match=r"model\.layers must be int"):
        load_config("zoo://bert?layers=two")
