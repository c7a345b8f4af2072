"""Lesson 07: images, and how they become tensors.

``photographs`` come with the package; ``preprocessing`` makes an image a model's input; ``augment`` changes it at
random. ``images`` holds a data set in memory, ``photo_files`` reads files of photographs, ``folders`` makes a data set
of a folder of them, ``hub`` reads from the disk what is too large for memory, ``downloads`` fetches others, ``scenes``
draws those of ``shapes``; ``sets`` is the table of all of them. ``files`` writes files whole or not at all, ``text``
writes for people, ``extras`` says what to install for what ``pip install vit-tutorial`` leaves out.
"""

from vit_tutorial.data.folders import image_folder, labelled_images
from vit_tutorial.data.images import Data, Images, LabelledImages, Split, hold_out
from vit_tutorial.data.photo_files import images_in, open_photo
from vit_tutorial.data.photographs import CIFAR10_CLASSES, cifar10_pictures, photograph, photograph_file
from vit_tutorial.data.preprocessing import Corner, CropMode, Preprocessing, denormalise, normalise
from vit_tutorial.data.real_features import RealFeatures, real_features, real_file, real_photograph
from vit_tutorial.data.sets import (
    DATASETS,
    DatasetSpec,
    augmentation,
    cifar10,
    digits,
    load,
    shapes,
    spec_of,
)
from vit_tutorial.options.recipe import FINE_TUNING, Recipe

__all__ = [
    "CIFAR10_CLASSES",
    "DATASETS",
    "FINE_TUNING",
    "Corner",
    "CropMode",
    "Data",
    "DatasetSpec",
    "Images",
    "LabelledImages",
    "Preprocessing",
    "RealFeatures",
    "Recipe",
    "Split",
    "augmentation",
    "cifar10",
    "cifar10_pictures",
    "denormalise",
    "digits",
    "hold_out",
    "image_folder",
    "images_in",
    "labelled_images",
    "load",
    "normalise",
    "open_photo",
    "photograph",
    "photograph_file",
    "real_features",
    "real_file",
    "real_photograph",
    "shapes",
    "spec_of",
]
