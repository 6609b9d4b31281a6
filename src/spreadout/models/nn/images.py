"""Encoders of images with GroupNorm: batch statistics of a few classes do not average over clients.

Or with `CohortNorm`, BatchNorm over whole cohorts, where a simulation can have that.

- `convnet`: four 3x3 convolutions, each halving the image, as few-shot learning on Omniglot uses.
- `resnet8 … resnet56`: He et al. 2016 for 32x32 images, (depth − 2) / 6 blocks in each of three stages.
- `mobilenet_v3_small`, `mobilenet_v3_large`: Howard et al. 2019, Tables 2 and 1; strides only as far as
  the image is large enough.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from spreadout.models.nn.cohort_norm import CohortNorm

Norm = Callable[[int], nn.Module]


def group_norm(channels: int) -> nn.GroupNorm:
    """Groups of about eight channels, and at least two groups where there are enough."""
    groups = max(1, channels // 8)
    while channels % groups:
        groups -= 1
    return nn.GroupNorm(groups, channels)


NORMS: dict[str, Norm] = {"group": group_norm, "batch": CohortNorm}


class ImageEncoder(nn.Module):
    """Maps every image on its own: what is put out for one does not depend on the others of a batch.

    With `CohortNorm` that is so except in training, where it depends on the whole cohort's.
    """


class ConvNet(ImageEncoder):
    """Conv, norm, ReLU, halve; four times; then a linear map."""

    def __init__(self, channels: int, width: int, dim: int, norm: Norm = group_norm) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i in range(4):
            layers += [
                nn.Conv2d(channels if i == 0 else width, width, 3, padding=1),
                norm(width),
                nn.ReLU(),
            ]
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, dim)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, channels, size, size) → (B, dim)"""
        found: Tensor = self.head(self.body(x).mean((-2, -1)))
        return found


class ResNet(ImageEncoder):
    """Three stages of 16, 32 and 64 channels, the second and third at half the size."""

    def __init__(self, depth: int, channels: int, dim: int, norm: Norm = group_norm) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.stem = nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1, bias=False), norm(16), nn.ReLU())
        stages: list[nn.Module] = []
        narrow = 16
        for wide in (16, 32, 64):
            for i in range(blocks):
                stages.append(_Block(narrow, wide, 2 if i == 0 and wide > 16 else 1, norm))
                narrow = wide
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(64, dim)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.stages(self.stem(x)).mean((-2, -1)))
        return found


class _Block(nn.Module):
    """Two convolutions with a shortcut; where channels grow, the shortcut is padded with zeros."""

    def __init__(self, narrow: int, wide: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.after_first, self.after_second = norm(wide), norm(wide)
        self.stride, self.grow = stride, wide - narrow

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.after_first(self.first(x)))
        y = self.after_second(self.second(y))
        short = x[..., :: self.stride, :: self.stride]
        return F.relu(y + F.pad(short, (0, 0, 0, 0, 0, self.grow)))


Bottlenecks = tuple[tuple[int, int, int, bool, str, int], ...]
SMALL: Bottlenecks = (  # kernel, expansion, output, squeeze, activation, stride
    (3, 16, 16, True, "relu", 2),
    (3, 72, 24, False, "relu", 2),
    (3, 88, 24, False, "relu", 1),
    (5, 96, 40, True, "swish", 2),
    (5, 240, 40, True, "swish", 1),
    (5, 240, 40, True, "swish", 1),
    (5, 120, 48, True, "swish", 1),
    (5, 144, 48, True, "swish", 1),
    (5, 288, 96, True, "swish", 2),
    (5, 576, 96, True, "swish", 1),
    (5, 576, 96, True, "swish", 1),
)
LARGE: Bottlenecks = (
    (3, 16, 16, False, "relu", 1),
    (3, 64, 24, False, "relu", 2),
    (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2),
    (5, 120, 40, True, "relu", 1),
    (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "swish", 2),
    (3, 200, 80, False, "swish", 1),
    (3, 184, 80, False, "swish", 1),
    (3, 184, 80, False, "swish", 1),
    (3, 480, 112, True, "swish", 1),
    (3, 672, 112, True, "swish", 1),
    (5, 672, 160, True, "swish", 2),
    (5, 960, 160, True, "swish", 1),
    (5, 960, 160, True, "swish", 1),
)
SMALLEST = 4  # pixels a side, below which strides stay at 1


class MobileNetV3(ImageEncoder):
    """Inverted bottlenecks with squeeze and excitation; then two dense layers, one `hidden` wide."""

    def __init__(
        self,
        bottlenecks: Bottlenecks,
        hidden: int,
        channels: int,
        size: int,
        dim: int,
        norm: Norm = group_norm,
    ) -> None:
        super().__init__()

        def stride(wanted: int) -> int:
            nonlocal size
            taken = wanted if size > SMALLEST else 1
            size = -(-size // taken)
            return taken

        layers: list[nn.Module] = [
            nn.Conv2d(channels, 16, 3, stride(2), padding=1, bias=False),
            norm(16),
            nn.Hardswish(),
        ]
        narrow = 16
        for kernel, expansion, wide, squeeze, activation, step in bottlenecks:
            layers.append(
                _Bottleneck(narrow, expansion, wide, kernel, stride(step), squeeze, activation, norm)
            )
            narrow = wide
        last = 6 * narrow
        layers += [nn.Conv2d(narrow, last, 1, bias=False), norm(last), nn.Hardswish()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Linear(last, hidden), nn.Hardswish(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x).mean((-2, -1)))
        return found


def mobilenet_v3_small(channels: int, size: int, dim: int, norm: Norm = group_norm) -> MobileNetV3:
    return MobileNetV3(SMALL, 1024, channels, size, dim, norm)


def mobilenet_v3_large(channels: int, size: int, dim: int, norm: Norm = group_norm) -> MobileNetV3:
    return MobileNetV3(LARGE, 1280, channels, size, dim, norm)


class _Bottleneck(nn.Module):
    def __init__(
        self,
        narrow: int,
        expansion: int,
        wide: int,
        kernel: int,
        stride: int,
        squeeze: bool,
        activation: str,
        norm: Norm,
    ) -> None:
        super().__init__()
        act: Callable[[], nn.Module] = nn.ReLU if activation == "relu" else nn.Hardswish
        self.expand: nn.Module = nn.Identity()
        if expansion != narrow:
            self.expand = nn.Sequential(
                nn.Conv2d(narrow, expansion, 1, bias=False), norm(expansion), act()
            )
        padding = kernel // 2
        self.depthwise = nn.Sequential(
            nn.Conv2d(expansion, expansion, kernel, stride, padding, groups=expansion, bias=False),
            norm(expansion),
            act(),
        )
        fewer = _eights(expansion / 4)
        self.squeeze = None
        if squeeze:
            down, up = nn.Conv2d(expansion, fewer, 1), nn.Conv2d(fewer, expansion, 1)
            self.squeeze = nn.Sequential(down, nn.ReLU(), up, nn.Hardsigmoid())
        self.project = nn.Sequential(nn.Conv2d(expansion, wide, 1, bias=False), norm(wide))
        self.residual = stride == 1 and narrow == wide

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        if self.squeeze is not None:
            y = y * self.squeeze(y.mean((-2, -1), keepdim=True))
        y = self.project(y)
        found: Tensor = x + y if self.residual else y
        return found


def _eights(channels: float) -> int:
    """The nearest multiple of eight, and not more than a tenth below."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
