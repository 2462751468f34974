"""User Configuration: one TOML file, every key documented where it is declared.

A key that is not set is derived from the problem class and the machine; `ai500 plan` shows the
result.
"""

from ai500.config.configuration_file import PLUGIN_KEYS as PLUGIN_KEYS
from ai500.config.configuration_file import changed_site_options as changed_site_options
from ai500.config.configuration_file import load as load
from ai500.config.configuration_file import parse_assignment as parse_assignment
from ai500.config.sections import MAX_COUNT as MAX_COUNT
from ai500.config.sections import AutomlConfig as AutomlConfig
from ai500.config.sections import CommunicationConfig as CommunicationConfig
from ai500.config.sections import Config as Config
from ai500.config.sections import ContainerConfig as ContainerConfig
from ai500.config.sections import GridEngineConfig as GridEngineConfig
from ai500.config.sections import ParallelConfig as ParallelConfig
from ai500.config.sections import RunConfig as RunConfig
from ai500.config.sections import SlurmConfig as SlurmConfig
from ai500.config.sections import TrainConfig as TrainConfig
from ai500.config.toml_text import documented_keys as documented_keys
from ai500.config.toml_text import template as template
from ai500.config.toml_text import to_toml as to_toml
