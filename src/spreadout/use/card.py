"""The card of an exported model, in Markdown: what it is, how well it does, how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spreadout.core.traffic import human_bytes
from spreadout.runs.evidence import evidence
from spreadout.runs.files import RunFiles
from spreadout.runs.result import Result


@dataclass(frozen=True)
class Story:
    """What a run says of itself: `summary.json`, and `privacy.json` where there is one."""

    summary: Mapping[str, Any]
    privacy: Mapping[str, Any] | None

    @classmethod
    def of_folder(cls, path: Path) -> Story:
        files = RunFiles.open(path)
        return cls(files.summary(), files.privacy())

    @classmethod
    def of_result(cls, result: Result) -> Story:
        return cls(result.summary, evidence(result.federation, result.state))

    @property
    def short(self) -> dict[str, Any]:
        keys = ("name", "method", "dataset", "clients", "rounds", "metrics", "bytes", "seed", "versions")
        left_out = {"bytes"} if self.counts_are_secret else set()
        return {key: self.summary[key] for key in keys if key in self.summary and key not in left_out}

    @property
    def counts_are_secret(self) -> bool:
        """Whether a server noised its sums: how often clients took part would tell who was there."""
        return self.privacy is not None and bool(self.privacy.get("audience"))


LOADING = {
    "torch-export": """\
import json, torch

model = torch.export.load("model.pt2").module()
classes = json.load(open("classes.json"))
{outputs} = model({inputs})
for place in scores.topk({top}).indices[0].tolist():
    print(classes["names"][place], scores[0, place].item())""",
    "onnx": """\
import json, numpy as np, onnxruntime

model = onnxruntime.InferenceSession("model.onnx")
classes = json.load(open("classes.json"))
{outputs} = model.run(None, {{{named}}})  # of NumPy arrays
for place in np.argsort(-scores[0])[:{top}]:
    print(classes["names"][place], scores[0, place])""",
    "faiss": """\
import faiss, json, torch

encoder = torch.export.load("encoder.pt2").module()
index = faiss.read_index("index.faiss")
classes = json.load(open("classes.json"))
scores, places = index.search(encoder({inputs}).numpy(), {top})
for place, score in zip(places[0], scores[0]):
    print(classes["names"][place], score)""",
    "safetensors": """\
import json
from safetensors.torch import load_file

tensors = load_file("model.safetensors")
classes = json.load(open("classes.json"))
weights = {{n.removeprefix("encoder."): t for n, t in tensors.items() if n.startswith("encoder.")}}
# encoder.load_state_dict(weights), then: normalize(encoder(x)) @ tensors["classes"].T,
# plus tensors["prior"] where there is one""",
}


def card(
    about: Mapping[str, Any],
    story: Story | None,
    first: tuple[str, str],
    columns: Sequence[str] = (),
    hashing: Sequence[str] = (),
) -> str:
    """The whole page; first: id and name of the class whose score comes first; columns, and how inputs
    are hashed: in words."""
    name = "model" if story is None else str(story.summary["name"])
    parts = [
        f"# {name}",
        _is(about, story),
        *([] if story is None else [_scores(story.summary)]),
        *([] if story is None or story.counts_are_secret else [_traffic(story.summary)]),
        *([] if story is None or story.privacy is None else [_privacy(story.privacy)]),
        _use(about, first, columns, hashing),
    ]
    return "\n\n".join(parts) + "\n"


def _is(about: Mapping[str, Any], story: Story | None) -> str:
    made = f"Exported by spreadout {about['version']} (`--to {about['to']}`)"
    if story is None:
        return f"{made}: a classifier over {about['classes']:,} classes."
    run = story.summary
    where = "in one place" if run["is_centralized"] else f"by {run['clients']:,} clients"
    return (
        f"{made}: a classifier over {about['classes']:,} classes, trained {where} with the method "
        f"`{run['method']}` on `{run['dataset']}`, {run['rounds']:,} rounds, seed {run['seed']}."
    )


def _scores(run: Mapping[str, Any]) -> str:
    references = run.get("references") or {}
    head = ["", *run["metrics"]]
    rows = [["this model", *(f"{value:.2f}" for value in run["metrics"].values())]]
    for name, one in references.items():
        found = one["metrics"]
        rows.append([name, *(f"{found[m]:.2f}" if m in found else "–" for m in run["metrics"])])
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    note = " The other rows are cheap predictions from all data in one place." if references else ""
    return f"## Scores\n\nOn held-out examples, in percent where the metric is a share.{note}\n\n{table}"


def _traffic(run: Mapping[str, Any]) -> str:
    moved = run["bytes"]
    times = f"{moved['participations']:,} participations"
    return (
        f"## Bytes\n\nClients received {human_bytes(moved['down'])} and sent {human_bytes(moved['up'])} "
        f"in {times}. The model takes {human_bytes(run['model_bytes'])}."
    )


def _privacy(said: Mapping[str, Any]) -> str:
    lines = [f"## Privacy\n\nGuarantee: {said['guarantee']}. The unit is {said['unit']}."]
    for one in said["epsilon"]:
        if one["epsilon"] is not None:
            lines.append(f"- ε = {one['epsilon']:.3g} at δ = {one['delta']:g}")
    out = [
        f"- {name}: {way['what']}" for name, way in said["channels"].items() if way["status"] != "absent"
    ]
    if out:
        whom = said.get("audience") or "the server"
        lines += [f"\nWhat of a client reached {whom} in training:\n", *out]
    return "\n".join(lines)


def _use(
    about: Mapping[str, Any], first: tuple[str, str], columns: Sequence[str], hashing: Sequence[str]
) -> str:
    names = [port["name"] for port in about["inputs"]]
    takes = "\n".join(
        f"- `{p['name']}`: {p['type']} ({', '.join(map(str, p['shape']))}), {p['about']}"
        for p in about["inputs"]
    )
    if about["hashed_features"]:
        takes += "\n- Features are hashed as the run's `data.hash_features` says, before they come here."
    if columns:
        listed = "\n".join(f"{number}. {line}" for number, line in enumerate(columns, 1))
        takes += f"\n\nThe numbers of an input are made of these columns, in this order:\n\n{listed}"
    if hashing:
        steps = "\n".join(f"- {step}" for step in hashing)
        takes += f"\n\nHow they are hashed (as `model.json` has it for programs):\n\n{steps}"
    alone = "," if about["to"] == "onnx" and len(about["outputs"]) == 1 else ""  # of a list of one
    code = LOADING[about["to"]].format(
        inputs=", ".join(names),
        named=", ".join(f'"{name}": {name}' for name in names),
        outputs=", ".join(about["outputs"]) + alone,
        top=min(5, about["classes"]),
    )
    shown = first[0] if first[0] == first[1] else f"{first[0]} ({first[1]})"
    order = f"Scores come in the order of `classes.json`; the first is of class {shown}."
    return f"## How to use it\n\nIt takes:\n\n{takes}\n\n{order}\n\n```python\n{code}\n```"
