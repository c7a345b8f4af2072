"""What changes the model, in the order of the lessons.

11: ``positions``; 12: ``hybrid`` and ``resnet``, convolutions before the tokens; 13: ``selfsup``, training without
labels; 15: ``modern`` and ``modern_config``, parts of after 2020; 17: ``words`` and ``text``, the towers of captions;
19: ``tokens``, fewer of them.
"""
