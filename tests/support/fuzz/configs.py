"""Targets: configs and overrides as text, and every config that validates, executed for a round or two."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w
import torch
from hypothesis import strategies as st

import spreadout as so
from fuzz.draw import section
from fuzz.mutate import mutated
from fuzz.prop import HangError, folder, outcome
from fuzz.target import Target
from spreadout.config.experiment import ClientsConfig, Experiment, RunConfig, ServerConfig
from spreadout.config.presets import preset_text
from spreadout.core.errors import UserError, memory_ran_out
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Dense
from spreadout.data.load import DataConfig
from spreadout.data.partitions import PARTITIONS
from spreadout.data.sources.base import Instances, RawDataset
from spreadout.data.sources.timeline import Windows
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.metrics import METRICS
from spreadout.methods import METHODS
from spreadout.models.build import ModelConfig, idle_keys
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.runs.predict import Predictor
from toys import tagged

KINDS = ("dense", "sets", "sparse", "images", "histories")
ENCODERS = {
    "images": ["convnet", "mlp", "resnet8"],
    "histories": ["mean", "attention"],
    "sparse": ["mlp", "lookup"],
}
LARGE = 10**5  # numbers from here on may take all the memory or time there is
# Keys that say how much work there is: their large values are run for ever, and rightly so.
WORK = {
    "local_steps": 6,
    "local_epochs": 3,
    "spreadout_steps": 3,
    "table_steps": 5,
    "layers": 2,
    "index_every": 5,
    "clients": 200,
}


@so.register_source
class FuzzToy(so.Source):
    """A little of every kind of data."""

    name: str = "fuzz-toy"
    kind: Literal["dense", "sets", "sparse", "images", "histories"] = "dense"

    def read(self, path: Path | None) -> RawDataset:
        return _toy(self.kind)


@cache
def _toy(kind: str) -> RawDataset:
    rng = np.random.default_rng(0)
    y = np.arange(48) % 6
    user = torch.from_numpy(np.arange(48) // 6)
    if kind == "histories":
        return Windows(window=3).examples(
            np.repeat(np.arange(8), 6), rng.integers(1, 7, 48), np.arange(48)
        )
    if kind == "sparse":
        data = tagged(60)
        x, labels = data.test.inputs["x"], data.test.labels
        return RawDataset(Instances({"x": x}, labels, torch.arange(len(labels)) // 3), 6)
    shape = (3, 8, 8) if kind == "images" else (5,)
    x = Dense(torch.from_numpy(rng.normal(size=(48, *shape)).astype(np.float32)))
    sets = [sorted({int(c), int(c + rng.integers(0, 3)) % 6}) if kind == "sets" else [int(c)] for c in y]
    return RawDataset(Instances({"x": x}, Ragged.from_lists(sets), user), 6)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A config for toy data, with keys of several sections at or near the ends of what they may be."""
    kind = draw(st.sampled_from(KINDS))
    method = draw(st.sampled_from(METHODS.parts()).flatmap(lambda part: section(part, 4)))
    model = draw(section(ModelConfig))
    if draw(st.integers(0, 9)):
        model["encoder"] = draw(st.sampled_from(ENCODERS.get(kind, ["mlp"])))
    found: dict[str, Any] = {
        "rounds": draw(st.sampled_from([1, 2])),
        "seed": draw(st.sampled_from([0, 1, 2**31, 2**62])),
        "data": {**draw(section(DataConfig)), "source": {"name": "fuzz-toy", "kind": kind}},
        "model": model,
        "method": method,
    }
    for name, part in (
        ("clients", ClientsConfig),
        ("server", ServerConfig),
        ("eval", EvalConfig),
        ("run", RunConfig),
    ):
        if draw(st.booleans()):
            found[name] = draw(section(part))
    if draw(st.integers(0, 7)) == 0:
        found["privacy"] = {"clip": 1.0, "noise": 1.0, **draw(section(GaussianMechanism))}
    if draw(st.booleans()):
        found["data"]["partition"] = draw(st.sampled_from(PARTITIONS.parts()).flatmap(section))
    if "eval" in found:
        names = st.sampled_from([name.replace("@k", "@3") for name in METRICS])
        found["eval"]["metrics"] = draw(st.lists(names, min_size=1, max_size=2, unique=True))
        found["eval"].pop("best_by", None)
    if draw(st.integers(0, 9)):
        _fit(found, kind)
    _tame(found)
    return found


def _fit(found: dict[str, Any], kind: str) -> None:
    """Without keys that are refused because something else makes them idle."""
    idle = idle_keys(found["model"].get("encoder", "mlp"))
    found["model"] = {name: value for name, value in found["model"].items() if name not in idle}
    if kind != "sparse":
        found["data"].pop("hash_features", None)
    if "hash_features" not in found["data"]:
        found["data"].pop("hash_signs", None)
    if kind == "histories" and found["method"]["name"] not in ("dual_encoder", "fedavg"):
        found["method"] = {"name": "dual_encoder"}
    for key, needs in (("spreadout_lr", "plain"), ("spreadout_optimizer", "plain")):
        if key in found["method"]:
            found["method"]["spreadout_step"] = needs
    if found.get("eval", {}).get("split") == "validation":
        found["data"]["validation_fraction"] = 0.3


def _tame(values: dict[str, Any]) -> None:
    for name, value in list(values.items()):
        if isinstance(value, dict):
            _tame(value)
        elif name in WORK and isinstance(value, int):
            values[name] = min(value, WORK[name])
        elif name == "executor":
            values[name] = "sequential"


def _largest(values: Any) -> float:
    if isinstance(values, dict):
        return max(map(_largest, values.values()), default=0)
    if isinstance(values, list):
        return max(map(_largest, values), default=0)
    return abs(values) if isinstance(values, int | float) else 0


def execute(case: dict[str, Any]) -> str:
    """Run it, write it, read it back. Large numbers may ask for more memory or time than there is."""

    def work() -> None:
        with folder() as home:
            try:
                experiment = Experiment.of(case)
                result = so.run(experiment, out=home / "run", device="cpu")
                again = Experiment.load(home / "run" / "config.toml")
                assert again.method == result.federation.method
                Predictor.load(home / "run")
            except Exception as error:
                if memory_ran_out(error) and _largest(case) >= LARGE:
                    raise UserError("not enough memory") from None
                raise

    try:
        return outcome(work)
    except HangError:
        if _largest(case) >= LARGE:
            return "too much work"
        raise


def read_text(files: dict[str, bytes]) -> str:
    with folder() as home:
        (home / "c.toml").write_bytes(files["c.toml"])
        return outcome(lambda: Experiment.load(home / "c.toml"))


def override(text: str) -> str:
    return outcome(lambda: Experiment.load("digits-fedaws", [text]))


SUITE = tomli_w.dumps({"rounds": 3, "model": {"hidden": [4, 5]}, "method": {"name": "fedss", "negatives": 3},
                       "clients": {"drift": "scaffold"}, "eval": {"metrics": ["P@1", "nDCG@3"]}})  # fmt: skip
KEYS = [f"{name}.{key}" for name, field in Experiment.model_fields.items()
        for key in getattr(field.annotation, "model_fields", {"": 0})]  # fmt: skip
VALUES = ("", "0", "-1", "1e999", "nan", "inf", "true", '"x"', "[1,2]", "[[]]", "{a=1}", "{}", "1979-05-27", "'''a\nb'''",
          "9" * 30, "all", "none", "..", "[", "\x00", "é", "\ud800", "0x10", "1_0", "{name='fedss'}", "['P@1']")  # fmt: skip
TARGETS = [
    Target(
        "config-text",
        mutated({"c.toml": SUITE.encode() + b"\n" + str(preset_text("digits-fedaws")).encode()}),
        read_text,
    ),
    Target(
        "overrides",
        st.builds(
            "{}={}".format,
            st.sampled_from(KEYS) | st.text(max_size=8),
            st.sampled_from(VALUES) | st.text(max_size=8),
        ),
        override,
    ),
    Target("config-executed", configs(), execute, slow=True),
]
