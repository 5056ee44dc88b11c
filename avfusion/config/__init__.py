"""The configuration: its schema, and how it is read, checked and written."""

from avfusion.config.keys import ConfigError
from avfusion.config.loading import Scalar, config_from_dict, load_config, to_flat_dict, to_yaml, with_overrides
from avfusion.config.schema import (
    AudioConfig,
    AugmentConfig,
    Config,
    DataConfig,
    FusionConfig,
    LearningRates,
    LossConfig,
    ModelConfig,
    ReportConfig,
    RunConfig,
    SyntheticConfig,
    TemporalConfig,
    TrainConfig,
    VisualConfig,
    WandbConfig,
    WeightDecays,
)

__all__ = [
    "AudioConfig",
    "AugmentConfig",
    "Config",
    "ConfigError",
    "DataConfig",
    "FusionConfig",
    "LearningRates",
    "LossConfig",
    "ModelConfig",
    "ReportConfig",
    "RunConfig",
    "Scalar",
    "SyntheticConfig",
    "TemporalConfig",
    "TrainConfig",
    "VisualConfig",
    "WandbConfig",
    "WeightDecays",
    "config_from_dict",
    "load_config",
    "to_flat_dict",
    "to_yaml",
    "with_overrides",
]
