"""ResNet18: a strided 7x7 convolution with max pooling, four stages of two residual blocks, then average pooling and a linear layer.

Its mode is evaluation; `--mode train` judges batch norm with the batch's own statistics.
"""

import torch
from torch import nn

batch_size = 2
image_size = 224
num_classes = 1000
base_channels = 64

SMALL = {"batch_size": 2, "image_size": 48, "num_classes": 10, "base_channels": 8}
SHAPES = [{"batch_size": (3, 5)}, {"num_classes": (33, 130)}, {"batch_size": 1, "num_classes": 65}]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and the way around them, which a 1x1 convolution adapts where the sizes differ."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        around = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += around
        return self.relu(out)


class Model(nn.Module):
    """Maps images [batch, 3, image_size, image_size] to class scores [batch, num_classes]."""

    def __init__(self, num_classes=1000, base_channels=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, base_channels, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(base_channels)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        stages, inputs = [], base_channels
        for depth in range(4):
            channels = base_channels * 2**depth
            stages.append(nn.Sequential(BasicBlock(inputs, channels, 2 if depth else 1), BasicBlock(channels, channels, 1)))
            inputs = channels
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def get_inputs():
    return [torch.rand(batch_size, 3, image_size, image_size)]


def get_init_inputs():
    return [num_classes, base_channels]
