"""A metric of one's own: how well the class is recognised that is recognised worst.

`spreadout run CONFIG --import own_metric 'eval.metrics=["P@1", "worst class"]'` takes it from the
command line; curves, tables and early stopping know its unit and which direction is better.
"""

import torch

import spreadout as so


@so.register_metric("worst class", unit="%", needs=("ranking",))
def worst_class(inputs: so.MetricInputs) -> float:
    """The least share, over classes, of a class's examples for which it is ranked first."""
    labels = inputs.labels  # the right classes of every example
    example = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    right = inputs.ranking[:, 0].cpu()[example] == labels.values
    count = torch.bincount(labels.values)
    found = torch.bincount(labels.values[right], minlength=len(count))
    return 100 * float((found / count)[count > 0].min())


if __name__ == "__main__":
    settings = ["rounds=60", 'eval.metrics=["P@1", "worst class"]']
    for method in ("baseline-1", "fedaws"):
        result = so.run(so.Experiment.load("digits-fedaws", [*settings, f"method.name={method}"]))
        scores = ", ".join(f"{name} {value:.1f}" for name, value in result.metrics.items())
        print(f"{method}: {scores}")
