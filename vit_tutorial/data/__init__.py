"""Lesson 07: pictures, how they become tensors, and the recipe that a training run on them starts from."""

from vit_tutorial.data.photographs import photograph, photograph_file
from vit_tutorial.data.preprocessing import Corner, Preprocessing, denormalise, normalise
from vit_tutorial.data.recipe import Recipe
from vit_tutorial.data.sets import (
    FOLDER,
    SETS,
    Data,
    Images,
    Record,
    Split,
    augmentation,
    cifar10,
    cifar10_pictures,
    digits,
    fashion_mnist,
    hold_out,
    image_folder,
    load,
    record_of,
    recorded,
    shapes,
)

__all__ = [
    "FOLDER",
    "SETS",
    "Corner",
    "Data",
    "Images",
    "Preprocessing",
    "Recipe",
    "Record",
    "Split",
    "augmentation",
    "cifar10",
    "cifar10_pictures",
    "denormalise",
    "digits",
    "fashion_mnist",
    "hold_out",
    "image_folder",
    "load",
    "normalise",
    "photograph",
    "photograph_file",
    "record_of",
    "recorded",
    "shapes",
]
