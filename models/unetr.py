"""UNETR on 96x96x96 volumes (document 000), operator for operator as MONAI has it.

A 3-D vision transformer (12 blocks of width 768, patches of 16) whose layers 3, 6, 9 and 12 feed a
convolutional decoder with residual blocks and instance normalisation: 1 channel in, 14 classes out, feature
size 16, "perceptron" patch projection. Parameter names are MONAI's (`norm_cross_attn` too, which no forward
pass reads).
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PATCH = 16


def _convolution(in_channels: int, out_channels: int, kernel: int = 3, bias: bool = False) -> nn.Sequential:
    conv = nn.Conv3d(in_channels, out_channels, kernel, padding=kernel // 2, bias=bias)
    return nn.Sequential(OrderedDict(conv=conv))


def _upsampling(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(conv=nn.ConvTranspose3d(in_channels, out_channels, 2, stride=2, bias=False))
    )


class PatchEmbedding(nn.Module):
    """[batch, channels, h, w, d] cut into flat patches, projected, positions added."""

    def __init__(self, channels: int, patch_count: int, width: int) -> None:
        super().__init__()
        # Element 0 holds the place of MONAI's rearranging layer, so that the projection is number 1 as there.
        self.patch_embeddings = nn.Sequential(Patches(), nn.Linear(channels * PATCH**3, width))
        self.position_embeddings = nn.Parameter(torch.zeros(1, patch_count, width))
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embeddings(x)
        embeddings = x + self.position_embeddings
        return self.dropout(embeddings)


class Patches(nn.Module):
    """[b, c, h·p, w·p, d·p] to [b, h·w·d, p·p·p·c] with p = 16."""

    def forward(self, x: Tensor) -> Tensor:
        b, c, height, width, depth = x.shape
        h, w, d = height // PATCH, width // PATCH, depth // PATCH
        x = x.reshape(b, c, h, PATCH, w, PATCH, d, PATCH)
        return x.permute(0, 2, 4, 6, 3, 5, 7, 1).reshape(b, h * w * d, PATCH**3 * c)


class SelfAttention(nn.Module):
    """Attention written out in two contractions and a softmax, as MONAI's default does."""

    def __init__(self, width: int, head_count: int) -> None:
        super().__init__()
        self.head_count = head_count
        self.scale = (width // head_count) ** -0.5
        self.out_proj = nn.Linear(width, width)
        self.qkv = nn.Linear(width, width * 3, bias=False)
        self.drop_output = nn.Dropout(0.0)
        self.drop_weights = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        output = self.qkv(x).reshape(batch, tokens, 3, self.head_count, width // self.head_count)
        output = output.permute(2, 0, 3, 1, 4)
        q, k, v = output[0], output[1], output[2]
        weights = torch.einsum("blxd,blyd->blxy", q, k) * self.scale
        weights = weights.softmax(dim=-1)
        weights = self.drop_weights(weights)
        x = torch.einsum("bhxy,bhyd->bhxd", weights, v)
        x = x.permute(0, 2, 1, 3).reshape(batch, tokens, width)
        x = self.out_proj(x)
        return self.drop_output(x)


class Perceptron(nn.Module):
    """Linear, GELU, linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(width, hidden)
        self.linear2 = nn.Linear(hidden, width)
        self.fn = nn.GELU()
        self.drop1 = nn.Dropout(0.0)
        self.drop2 = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fn(self.linear1(x))
        x = self.drop1(x)
        x = self.linear2(x)
        return self.drop2(x)


class TransformerBlock(nn.Module):
    """Attention and perceptron, each behind a layer norm and inside a residual sum."""

    def __init__(self, width: int, hidden: int, head_count: int) -> None:
        super().__init__()
        self.mlp = Perceptron(width, hidden)
        self.norm1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, head_count)
        self.norm2 = nn.LayerNorm(width)
        self.norm_cross_attn = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """The encoder: its normalised output, and the output of every block."""

    def __init__(self, channels: int, patch_count: int, width: int, hidden: int, head_count: int) -> None:
        super().__init__()
        self.patch_embedding = PatchEmbedding(channels, patch_count, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, hidden, head_count) for _ in range(12))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x = self.patch_embedding(x)
        hidden_states = []
        for block in self.blocks:
            x = block(x)
            hidden_states.append(x)
        return self.norm(x), hidden_states


class ResidualBlock(nn.Module):
    """Two 3x3x3 convolutions with instance norm and leaky ReLU around a shortcut."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = _convolution(in_channels, out_channels)
        self.conv2 = _convolution(out_channels, out_channels)
        self.lrelu = nn.LeakyReLU(negative_slope=0.01, inplace=True)
        self.norm1 = nn.InstanceNorm3d(out_channels)
        self.norm2 = nn.InstanceNorm3d(out_channels)
        self.downsample = in_channels != out_channels
        if self.downsample:
            self.conv3 = _convolution(in_channels, out_channels, kernel=1)
            self.norm3 = nn.InstanceNorm3d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        out = self.conv1(x)
        out = self.norm1(out)
        out = self.lrelu(out)
        out = self.conv2(out)
        out = self.norm2(out)
        if self.downsample:
            residual = self.conv3(residual)
            residual = self.norm3(residual)
        out += residual
        return self.lrelu(out)


class InputEncoder(nn.Module):
    """A residual block on the image itself."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.layer = ResidualBlock(in_channels, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class ProjectionEncoder(nn.Module):
    """Transformer features upsampled 2, 4 or 8 times."""

    def __init__(self, in_channels: int, out_channels: int, block_count: int) -> None:
        super().__init__()
        self.transp_conv_init = _upsampling(in_channels, out_channels)
        self.blocks = nn.ModuleList(
            nn.Sequential(_upsampling(out_channels, out_channels), ResidualBlock(out_channels, out_channels))
            for _ in range(block_count)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.transp_conv_init(x)
        for block in self.blocks:
            x = block(x)
        return x


class Decoder(nn.Module):
    """Upsamples, concatenates the skip connection, convolves."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.transp_conv = _upsampling(in_channels, out_channels)
        self.conv_block = ResidualBlock(out_channels + out_channels, out_channels)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        out = self.transp_conv(x)
        out = torch.cat((out, skip), dim=1)
        return self.conv_block(out)


class Output(nn.Module):
    """1x1x1 convolution to the classes."""

    def __init__(self, in_channels: int, class_count: int) -> None:
        super().__init__()
        self.conv = _convolution(in_channels, class_count, kernel=1, bias=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class UNETR(nn.Module):
    """[batch, in_channels, size, size, size] float32 to [batch, class_count, size, size, size] scores."""

    def __init__(
        self,
        *,
        in_channels: int = 1,
        class_count: int = 14,
        size: int = 96,
        feature: int = 16,
        width: int = 768,
        hidden: int = 3072,
        head_count: int = 12,
    ) -> None:
        super().__init__()
        self.grid = size // PATCH
        self.width = width
        self.vit = ViT(in_channels, self.grid**3, width, hidden, head_count)
        self.encoder1 = InputEncoder(in_channels, feature)
        self.encoder2 = ProjectionEncoder(width, feature * 2, block_count=2)
        self.encoder3 = ProjectionEncoder(width, feature * 4, block_count=1)
        self.encoder4 = ProjectionEncoder(width, feature * 8, block_count=0)
        self.decoder5 = Decoder(width, feature * 8)
        self.decoder4 = Decoder(feature * 8, feature * 4)
        self.decoder3 = Decoder(feature * 4, feature * 2)
        self.decoder2 = Decoder(feature * 2, feature)
        self.out = Output(feature, class_count)

    def volume(self, tokens: Tensor) -> Tensor:
        """[batch, grid^3, width] tokens as a [batch, width, grid, grid, grid] volume."""
        x = tokens.view(tokens.size(0), self.grid, self.grid, self.grid, self.width)
        return x.permute(0, 4, 1, 2, 3).contiguous()

    def forward(self, image: Tensor) -> Tensor:
        # The names live to the end of the pass, as MONAI's do: they decide what inference holds.
        x, hidden_states = self.vit(image)
        enc1 = self.encoder1(image)
        enc2 = self.encoder2(self.volume(hidden_states[3]))
        enc3 = self.encoder3(self.volume(hidden_states[6]))
        enc4 = self.encoder4(self.volume(hidden_states[9]))
        dec4 = self.volume(x)
        dec3 = self.decoder5(dec4, enc4)
        dec2 = self.decoder4(dec3, enc3)
        dec1 = self.decoder3(dec2, enc2)
        out = self.decoder2(dec1, enc1)
        return self.out(out)


def make_model() -> nn.Module:
    return UNETR()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[Tensor]]:
    return (torch.randn(batch, 1, 96, 96, 96),), (torch.randint(0, 14, (batch, 96, 96, 96)),)


def loss(output: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(output, labels)
