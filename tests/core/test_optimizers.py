import pytest
import torch

from spreadout.core.optimizers import Optimizer, step_dense_, step_rows_, step_tensors_
from spreadout.core.rows import Rows

RULES = [
    Optimizer(optimizer="sgd", lr=0.1),
    Optimizer(optimizer="sgd", lr=0.1, momentum=0.9),
    Optimizer(optimizer="adam", lr=0.1, eps=1e-8),
    Optimizer(optimizer="adagrad", lr=0.1, eps=1e-10),
    Optimizer(optimizer="yogi", lr=0.1),
    Optimizer(optimizer="dog"),
]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RULES[0], lambda p: torch.optim.SGD(p, lr=0.1)),
        (RULES[1], lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        (RULES[2], lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.99), eps=1e-8)),
        (
            RULES[3],
            lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-10, initial_accumulator_value=0.1),
        ),
    ],
)
def test_rules_equal_torch_optim(ours, theirs) -> None:
    value = torch.randn(4, 3)
    twin = value.clone().requires_grad_()
    slots, reference = ours.init(value), theirs([twin])
    for _ in range(5):
        gradient = torch.randn(4, 3)
        step_dense_(ours, value, gradient, slots)
        twin.grad = gradient
        reference.step()
    torch.testing.assert_close(value, twin.detach())


@pytest.mark.parametrize("turned", [False, True])
def test_a_fused_step_of_a_stack_is_the_step_in_many_passes(turned: bool) -> None:
    """Of the first clients of a stack, as local training takes it; in either order of memory."""
    rule = Optimizer(optimizer="adam", lr=0.1, eps=1e-3)
    assert rule.is_fused
    assert not Optimizer(optimizer="yogi").is_fused
    value = torch.randn(5, 4, 3)
    value = value.transpose(1, 2) if turned else value
    twin = value.clone()
    slots, reference = rule.init(value), rule.init(twin)
    for active in (5, 5, 3):
        gradient = torch.randn(active, *value.shape[1:])
        mine = {name: slot if name == "steps" else slot[:active] for name, slot in slots.items()}
        its = {name: slot if name == "steps" else slot[:active] for name, slot in reference.items()}
        rule.step_(value[:active], gradient, mine)
        twin[:active] += rule.move(gradient, its)
    torch.testing.assert_close(value, twin)
    for name in slots:
        torch.testing.assert_close(slots[name], reference[name])


def test_yogi_by_hand() -> None:
    rule = Optimizer(optimizer="yogi", lr=1.0, beta1=0.0, beta2=0.5, eps=1.0)
    value, slots = torch.zeros(1), rule.init(torch.zeros(1))
    step_dense_(rule, value, torch.tensor([2.0]), slots)
    # v = 0 − 0.5·sign(0 − 4)·4 = 2, corrected by 1 − 0.5 to 4: the step is −2 / (2 + 1).
    torch.testing.assert_close(value, torch.tensor([-2 / 3]))
    step_dense_(rule, value, torch.tensor([1.0]), slots)
    # v = 2 − 0.5·sign(2 − 1)·1 = 1.5, corrected by 1 − 0.25 to 2: the step is −1 / (√2 + 1).
    torch.testing.assert_close(value, torch.tensor([-2 / 3 - 1 / (2**0.5 + 1)]))


def test_dog_equals_its_paper_and_needs_no_rate() -> None:
    rule = Optimizer(optimizer="dog")
    for scale in (1e-3, 1.0, 1e3):  # of the whole problem: a rate would have to follow it
        value = torch.full((5,), 10.0)
        slots, twin = rule.init(value), value.clone()
        start, squares, far = value.clone(), 0.0, 1e-4 * (1 + float(value.norm()))
        for _ in range(400):
            step_dense_(rule, value, scale * (value - 1), slots)
            gradient = scale * (twin - 1)  # Eq. 1 and 2 of Ivgi et al.
            squares += float(gradient.square().sum())
            twin = twin - far / squares**0.5 * gradient
            far = max(far, float((twin - start).norm()))
        torch.testing.assert_close(value, twin, rtol=1e-3, atol=1e-3)
        assert (value - 1).norm() < 0.02 * (start - 1).norm()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.optimizer}-{r.momentum}")
def test_untouched_rows_do_not_move_and_touched_ones_move_as_if_alone(rule: Optimizer) -> None:
    table = torch.randn(6, 3)
    start = table.clone()
    slots = rule.init(table, rows=6)
    alone, alone_slots = table[[2]].clone(), rule.init(table[[2]])
    for ids in ([2, 4], [4], [2], [1, 2]):  # momentum from the first step must not drag row 4 later
        gradient = torch.randn(len(ids), 3)
        before = table.clone()
        step_rows_(rule, table, Rows(torch.tensor(ids), gradient), slots, sphere=False)
        others = [i for i in range(6) if i not in ids]
        assert torch.equal(table[others], before[others])
        if 2 in ids:
            step_dense_(rule, alone, gradient[[ids.index(2)]], alone_slots)
    torch.testing.assert_close(table[[2]], alone)
    assert torch.equal(table[[0, 3, 5]], start[[0, 3, 5]])


def test_rows_on_the_sphere_stay_on_it() -> None:
    table = torch.nn.functional.normalize(torch.randn(6, 3), dim=1)
    rule = Optimizer(lr=5.0)
    step_rows_(rule, table, Rows(torch.tensor([0, 5]), torch.randn(2, 3)), {}, sphere=True)
    torch.testing.assert_close(table.norm(dim=1), torch.ones(6))


@pytest.mark.parametrize("rule", RULES, ids=[f"{rule.optimizer} {rule.momentum}" for rule in RULES])
def test_several_tensors_move_as_each_by_itself(rule: Optimizer) -> None:
    torch.manual_seed(0)
    shapes = [(4, 3), (5,), (2, 3, 3, 3), (1,)]
    values = [torch.randn(shape) for shape in shapes]
    alone = [value.clone() for value in values]
    slots, own = ([rule.init(value) for value in values] for _ in range(2))
    for _ in range(3):
        gradients = [torch.randn(shape) for shape in shapes]
        before = [gradient.clone() for gradient in gradients]
        step_tensors_(rule, values, gradients, slots)
        for value, gradient, slot in zip(alone, before, own, strict=True):
            step_dense_(rule, value, gradient, slot)
        assert all(torch.equal(a, b) for a, b in zip(values, alone, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(gradients, before, strict=True))
