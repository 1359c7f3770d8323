"""Image features that are learned from no data, and so cost no privacy: a scattering transform.

A linear model on them is a strong private model of small images, because few weights have to be
found under noise (Tramèr and Boneh, "Differentially private learning needs better features (or
much more data)", ICLR 2021).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ldp import InvalidInput

_SLANT = 0.5
_AVERAGED = 1.6
_PAD = 8


class Scattering(nn.Module):
    """Map images, shape (n, 1, h, w), to averaged moduli of wavelets, shape (n, c, h/4, w/4).

    c = 1 + 2 l + l**2 for l angles: a local mean, the two scales' wavelet moduli, and of the
    moduli at the finer scale those at the coarser one. The averages are over every pixel at the
    finer scale, over every second one, each way, at the coarser. Each sample by itself, nothing
    trainable. Cost: about 1 ms and 2 MB an image while it runs; batches of tens are quickest.
    Raises `InvalidInput` unless height and width are multiples of 4 above 8 and there is an
    angle.
    Source: Bruna and Mallat, "Invariant scattering convolution networks", IEEE TPAMI 35(8),
    2013, with Morlet wavelets of centre frequency 3 pi / 4 / 2**j and width 0.8 2**j.
    """

    def __init__(self, height: int = 28, width: int = 28, angles: int = 8) -> None:
        super().__init__()
        if height % 4 or width % 4 or min(height, width) <= _PAD or angles < 1:
            raise InvalidInput(
                "height and width must be multiples of 4 above 8, with one angle or more, got "
                f"{height}, {width} and {angles}"
            )
        shape = (height + 2 * _PAD, width + 2 * _PAD)
        fine, coarse = (
            torch.stack(
                [_morlet(shape, scale, math.pi * angle / angles) for angle in range(angles)]
            )
            for scale in range(2)
        )
        self.channels = 1 + 2 * angles + angles**2
        self.register_buffer("fine", fine)
        self.register_buffer("coarse", _quarters(coarse))
        for step in (1, 2):
            for side, size in zip(("rows", "columns"), shape, strict=True):
                self.register_buffer(f"{side}_{step}", _averages(size, step))

    def forward(self, images: Tensor) -> Tensor:
        """Return the coefficients; see the class."""
        padded = pad(images, (_PAD, _PAD, _PAD, _PAD), mode="reflect")[:, 0]
        spectrum = torch.fft.fft2(padded)
        fine = torch.fft.ifft2(spectrum.unsqueeze(1) * self.get_buffer("fine")).abs()
        second = self._coarse(torch.fft.fft2(fine)).flatten(1, 2)
        return torch.cat(
            [
                self._average(padded.unsqueeze(1), 1),
                self._average(fine, 1),
                self._average(self._coarse(spectrum), 2),
                self._average(second, 2),
            ],
            dim=1,
        )

    def _coarse(self, spectrum: Tensor) -> Tensor:
        """Return the coarse moduli at every second pixel: the quarters of a spectrum add up."""
        pieces, filters = _quarters(spectrum), self.get_buffer("coarse")
        folded = pieces[0].unsqueeze(-3) * filters[0]
        for piece, filtering in zip(pieces[1:], filters[1:], strict=True):
            folded = torch.addcmul(folded, piece.unsqueeze(-3), filtering)
        moduli: Tensor = torch.fft.ifft2(folded).abs()
        return moduli / 4

    def _average(self, values: Tensor, step: int) -> Tensor:
        smooth: Tensor = self.get_buffer(f"rows_{step}") @ values
        return smooth @ self.get_buffer(f"columns_{step}").mT


def linear_on_scattering(classes: int, angles: int = 8) -> nn.Sequential:
    """Return group normalisation and a linear layer for the coefficients of 28 x 28 images.

    The normalisation is each sample's own, in groups of three channels where they divide by
    three, and has no weights. Compute the coefficients once, and train this on them.
    """
    channels = Scattering(angles=angles).channels
    groups = channels // 3 if channels % 3 == 0 else 1
    return nn.Sequential(
        nn.GroupNorm(groups, channels, affine=False),
        nn.Flatten(),
        nn.Linear(channels * 49, classes),
    )


def _grid(shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    axes = [(torch.arange(n, dtype=torch.float64) + n // 2) % n - n // 2 for n in shape]
    rows, columns = torch.meshgrid(*axes, indexing="ij")
    return rows, columns


def _averages(size: int, step: int) -> Tensor:
    """Return the weights of every `step`-th place of a circle in averages around every fourth
    inner one, shape (outputs, places)."""
    centres = torch.arange(_PAD, size - _PAD, 4, dtype=torch.float64)
    places = torch.arange(0, size, step, dtype=torch.float64)
    distances = (centres[:, None] - places + size // 2) % size - size // 2
    weights = torch.exp(-(distances**2) / (2 * _AVERAGED**2))
    return (weights / weights.sum(1, keepdim=True)).float()


def _quarters(spectrum: Tensor) -> Tensor:
    """Return the four quarters of the last two dimensions, shape (4, ..., h/2, w/2)."""
    halves = torch.stack(spectrum.tensor_split(2, -2))
    return torch.cat(halves.tensor_split(2, -1))


def _morlet(shape: tuple[int, int], scale: int, angle: float) -> Tensor:
    """Return the spectrum of a Morlet wavelet of mean zero, whose envelope has unit sum."""
    rows, columns = _grid(shape)
    along = math.cos(angle) * columns + math.sin(angle) * rows
    across = math.cos(angle) * rows - math.sin(angle) * columns
    width, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    envelope = torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * width**2))
    envelope = envelope / envelope.sum()
    wave = torch.exp(1j * frequency * along) * envelope
    spectrum: Tensor = torch.fft.fft2(wave - wave.sum() * envelope).to(torch.complex64)
    return spectrum
