"""Client-drift correction: every method and number of local steps, with each correction."""

from __future__ import annotations

from benchmarks.papers.drift import LABELS, STEPS
from benchmarks.quote.edges import edges
from benchmarks.quote.tables import over_seeds, read, spread, table

CORRECTIONS = {"plain": "none", "fedprox": "FedProx", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}


def corrections(data: str) -> str:
    """P@1 of every arm, with the least gain over no correction that any seed has."""
    path = f"results/drift/{data}.json"
    made = read(path)
    scores = {v["name"]: v["metrics"]["P@1"] for v in made["variants"]}
    rows = []
    for method, label in LABELS.items():
        for steps in STEPS:
            arms = {name: scores[f"{method}-{steps}-{name}"] for name in CORRECTIONS}
            cells = [spread(arms["plain"])]
            for name in list(CORRECTIONS)[1:]:
                pairs = zip(arms[name]["values"], arms["plain"]["values"], strict=True)
                gains = [own - plain for own, plain in pairs]
                cells.append(f"{spread(arms[name])} ({min(gains):+.1f} … {max(gains):+.1f})")
            rows.append([label, str(steps), *cells])
    head = ("P@1", "local steps", *CORRECTIONS.values())
    floor = f"Always the most frequent label: {made['constant']['P@1']:.1f}."
    note = f"{over_seeds(made)} In brackets: the gains over no correction, seed by seed. {floor} "
    note += edges(made, f"results/drift/{data}-tuning.json", least=3)  # strengths have but two values
    return table(head, rows, path, note=note.strip())
