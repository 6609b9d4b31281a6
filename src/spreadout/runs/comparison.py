"""What a comparison leaves: its arms, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from spreadout.core.traffic import human_bytes
from spreadout.runs.arms import Arm, shown, spread
from spreadout.runs.tables import data_frame, html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False)
class Comparison(Sequence[Arm]):
    """Finished variants, each an arm with one run for every seed; by place or by name.

    >>> import spreadout as so
    >>> base = so.Experiment(rounds=2, clients={"local_steps": 1})
    >>> other = so.Experiment.of({"rounds": 2, "method": {"name": "baseline-2"}})
    >>> found = so.compare({"spread": base, "fixed": other}, seeds=[0, 1])
    >>> [arm.label for arm in found], found["fixed"].summaries[0]["method"]
    (['spread', 'fixed'], 'baseline-2')
    >>> found.to_pandas()[["variant", "seed"]].values.tolist()
    [['spread', 0], ['spread', 1], ['fixed', 0], ['fixed', 1]]
    """

    name: str
    arms: tuple[Arm, ...]
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.arms)

    @overload
    def __getitem__(self, at: int | str) -> Arm: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Arm]: ...
    def __getitem__(self, at: int | str | slice) -> Arm | Sequence[Arm]:
        if isinstance(at, str):
            return {arm.name: arm for arm in self.arms}[at]
        return self.arms[at]

    @property
    def metric_names(self) -> list[str]:
        """Every metric that some variant has."""
        return list(dict.fromkeys(name for arm in self.arms for name in arm.metric_names))

    def to_pandas(self) -> pandas.DataFrame:
        """A row for every run: which variant and seed, its metrics, bytes and seconds."""
        return data_frame(
            [
                {
                    "variant": arm.name,
                    "method": summary["method"],
                    "data": summary["dataset"],
                    "seed": summary["seed"],
                    "rounds": summary["rounds"],
                    **{name: arm.metric(name)[place] for name in arm.metric_names},
                    "bytes_down": summary["bytes"]["down"],
                    "bytes_up": summary["bytes"]["up"],
                    "seconds": summary["seconds"],
                }
                for arm in self.arms
                for place, summary in enumerate(arm.summaries)
            ]
        )

    def __repr__(self) -> str:
        seeds = len(self.arms[0].summaries)
        runs = "one seed" if seeds == 1 else f"{seeds} seeds"
        where = f", in {self.folder}" if self.folder else ""
        lines = [f"<Comparison of {len(self)} variants, {runs}{where}"]
        for arm in self.arms:
            scores = ", ".join(f"{name} {_score(arm, name)}" for name in arm.metric_names)
            lines.append(f" {arm.label}: {scores}")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        names = self.metric_names
        head = ["", "method", "data", "rounds", *names, "down / up per client and round", "seconds"]
        rows = []
        for arm in self.arms:
            setting = [str(arm.summaries[0][key]) for key in ("method", "dataset", "rounds")]
            scores = [_score(arm, name) if name in arm.metric_names else "–" for name in names]
            moved = " / ".join(human_bytes(arm.bytes_per_visit(way)) for way in ("down", "up"))
            seconds = sum(summary["seconds"] for summary in arm.summaries)
            rows.append([arm.label, *setting, *scores, moved, f"{seconds:.1f}"])
        return html_table(head, rows)


def _score(arm: Arm, name: str) -> str:
    return " ".join(part for part in shown(spread(arm.metric(name))) if part)
