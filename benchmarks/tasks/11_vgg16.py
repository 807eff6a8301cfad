"""VGG16: thirteen 3x3 convolutions in five stages, each stage closed by 2x2 max pooling, then three linear layers."""

import torch
from torch import nn

batch_size = 10
image_size = 224
num_classes = 1000
base_channels = 64
classifier_width = 4096

SMALL = {"batch_size": 2, "image_size": 32, "num_classes": 10, "base_channels": 8, "classifier_width": 64}
SHAPES = [{"batch_size": 1}, {"batch_size": 3, "num_classes": (2, 33)}, {"num_classes": 1}]

STAGES = ((1, 1), (2, 2), (4, 4, 4), (8, 8, 8), (8, 8, 8))  # channels of each convolution, in units of base_channels


class Model(nn.Module):
    """Maps images [batch, 3, image_size, image_size] to class scores [batch, num_classes]."""

    def __init__(self, num_classes=1000, image_size=224, base_channels=64, classifier_width=4096):
        super().__init__()
        layers, channels = [], 3
        for stage in STAGES:
            for factor in stage:
                layers += [nn.Conv2d(channels, factor * base_channels, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                channels = factor * base_channels
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        side = image_size // 2 ** len(STAGES)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * side * side, classifier_width),
            nn.ReLU(inplace=True),
            nn.Dropout(p=0.0),
            nn.Linear(classifier_width, classifier_width),
            nn.ReLU(inplace=True),
            nn.Dropout(p=0.0),
            nn.Linear(classifier_width, num_classes),
        )

        for layer in self.modules():  # torch's default start lets the signal die out: early weights would hardly show in the result
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.normal_(layer.bias, std=0.1)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


def get_inputs():
    return [torch.rand(batch_size, 3, image_size, image_size)]


def get_init_inputs():
    return [num_classes, image_size, base_channels, classifier_width]
