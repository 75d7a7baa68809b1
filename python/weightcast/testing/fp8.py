"""FP8 block quantisation by torch alone: what weightcast's must equal, bit for bit."""

import torch


def quantise(
    weight: torch.Tensor, block: tuple[int, int] = (128, 128)
) -> tuple[torch.Tensor, torch.Tensor]:
    """The e4m3 codes and F32 scales of a matrix by the formula `deepgemm`, block by block. Slow."""
    rows, columns = weight.shape
    grid = (-(-rows // block[0]), -(-columns // block[1]))
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    scales = torch.empty(grid)
    for i in range(grid[0]):
        for j in range(grid[1]):
            here = (slice(i * block[0], (i + 1) * block[0]), slice(j * block[1], (j + 1) * block[1]))
            values = weight[here].float()
            scale = values.abs().amax().clamp(1e-4) / 448.0
            scales[i, j] = scale
            codes[here] = (values * (1.0 / scale)).to(torch.float8_e4m3fn)
    return codes, scales
