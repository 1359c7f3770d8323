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

_SCALES = 2
_SLANT = 0.5
_PAD = 8


class Scattering(nn.Module):
    """Map images, shape (n, 1, h, w), to averaged moduli of wavelets, shape (n, c, h/4, w/4).

    c = 1 + 2 l + l**2 for l angles: a local mean, the two scales' wavelet moduli, and of the
    moduli at the finer scale those at the coarser one. Each sample by itself, nothing
    trainable. Cost: about 2 MB an image while it runs, so go in batches of some hundreds.
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
        wavelets = [
            [_morlet(shape, scale, math.pi * angle / angles) for angle in range(angles)]
            for scale in range(_SCALES)
        ]
        self.channels = 1 + 2 * angles + angles**2
        self.register_buffer("wavelets", torch.stack([torch.stack(row) for row in wavelets]))
        self.register_buffer("lowpass", _gaussian(shape, 0.8 * 2 ** (_SCALES - 1)))

    def forward(self, images: Tensor) -> Tensor:
        """Return the coefficients; see the class."""
        padded = pad(images, (_PAD, _PAD, _PAD, _PAD), mode="reflect")[:, 0]
        spectrum = torch.fft.fft2(padded)
        fine = self._moduli(spectrum.unsqueeze(1), 0)
        coarse = self._moduli(spectrum.unsqueeze(1), 1)
        second = self._moduli(torch.fft.fft2(fine).unsqueeze(2), 1).flatten(1, 2)
        whole = torch.cat([padded.unsqueeze(1), fine, coarse, second], dim=1)
        smooth = torch.fft.ifft2(torch.fft.fft2(whole) * self.lowpass).real
        inner: Tensor = smooth[..., _PAD:-_PAD:4, _PAD:-_PAD:4]
        return inner

    def _moduli(self, spectrum: Tensor, scale: int) -> Tensor:
        filters: Tensor = self.get_buffer("wavelets")[scale]
        moduli: Tensor = torch.fft.ifft2(spectrum * filters).abs()
        return moduli


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


def _gaussian(shape: tuple[int, int], width: float) -> Tensor:
    """Return the spectrum of a Gaussian of unit sum, centred at the origin of the torus."""
    rows, columns = _grid(shape)
    bump = torch.exp(-(rows**2 + columns**2) / (2 * width**2))
    spectrum: Tensor = torch.fft.fft2(bump / bump.sum()).real.float()
    return spectrum


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
