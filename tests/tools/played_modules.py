# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""Stand-ins for packages that a tool's parser imports and does not use (torch, triton, CUDA bindings).

The parsers of launch flags and configuration files are plain Python inside packages that import a GPU stack of several
gigabytes. `play(names)` answers imports of those of `names` that are not installed with modules whose attributes are classes
made when they are asked for: enough to define subclasses, annotations, decorators and defaults. What is installed is left alone.
"""
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
import typing

VERSION = "2.9.0"  # what the stand-in of torch says it is
PLAYING = set()  # what is played
ABSENT = {"npu", "musa", "mlu", "hpu"}  # backends that packages look for with hasattr


# A subclass of typing's, so that a class may have both a played base and a Protocol or an abstract one.
class Played(type(typing.Protocol)):
    """A class whose attributes are more such classes."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        made = Played(name, (Thing,), {"__module__": cls.__module__})
        setattr(cls, name, made)
        return made

    def __call__(cls, *arguments, **named):
        # A decorator gives back what it decorates.
        if len(arguments) == 1 and not named and isinstance(arguments[0], (types.FunctionType, type)):
            return arguments[0]
        return super().__call__(*arguments, **named)

    def register(cls, *arguments, **named):  # ABCMeta's own name
        return lambda decorated: decorated

    def __iter__(cls):
        return iter(())

    def __len__(cls):
        return 0

    def __getitem__(cls, key):
        return cls

    def __setitem__(cls, key, value):
        pass

    def __int__(cls):
        return 0

    def __contains__(cls, key):
        return False

    def __lt__(cls, other):
        return False

    __gt__ = __le__ = __ge__ = __lt__


class Thing(metaclass=Played):
    def __init__(self, *arguments, **named):
        pass

    def __init_subclass__(cls, **named):
        pass

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema
        return core_schema.any_schema()

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(type(self), name)

    def __call__(self, *arguments, **named):
        if len(arguments) == 1 and not named and isinstance(arguments[0], (types.FunctionType, type)):
            return arguments[0]
        return Thing()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __radd__(self, other):
        return other

    def __int__(self):
        return 0

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def __lt__(self, other):
        return False

    __gt__ = __le__ = __ge__ = __lt__


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name == "__version__":
            return VERSION
        if name in ABSENT or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        made = Played(name, (Thing,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if not any(name == one or name.startswith(one + ".") for one in self.names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def play(names):
    """Which of `names` are played: those that are not installed, and modules within a package (`vllm.env_override`)."""
    if not hasattr(typing, "override"):  # Python before 3.12
        typing.override = lambda function: function
    missing = {name for name in names if name not in sys.modules and ("." in name or importlib.util.find_spec(name) is None)}
    PLAYING.update(missing)
    sys.meta_path.insert(0, Finder(missing))
    theirs = importlib.metadata.version
    importlib.metadata.version = lambda name: VERSION if name in missing else theirs(name)
    return missing
