"""The options of ``opbuild compile`` and ``opbuild atc``, and the request that they are once checked together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from opbuild.cli import option_values as values
from opbuild.cli.atc_options import FOREIGN, check_foreign
from opbuild.cli.build_log import LEVELS
from opbuild.cli.dynamic_sizes import parse_sizes, signatures
from opbuild.cli.option_values import (
    CONFLICTING,
    DEPENDENT,
    MISSING,
    Whole,
    WordValue,
    required,
    wrong,
)
from opbuild.cli.options import CORES, DEFAULT_PLACE, THREADS, F, one_model, option_group
from opbuild.config import CACHE_MODES, IMPLEMENTATION_MODES, PRECISION_MODES, options_in
from opbuild.errors import OptionError
from opbuild.files.kinds import OFFLINE, ONNX, kind_of, require_kind
from opbuild.files.writing import same_file
from opbuild.frontend.input_shape import Shape, parse_open_shape
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.target.host import BUILDABLE, resolve_soc_version

BUILD, TO_JSON, CHECK, SHOW = 0, 1, 3, 6
"""Values of ``--mode``."""

_EXPORT = "export it to ONNX and use --framework=5"
_FRAMEWORK = WordValue(
    ("5",),
    {
        "0": f"0 is Caffe, which opbuild does not read: {_EXPORT} (caffe2onnx)",
        "1": f"1 is MindSpore's AIR, which opbuild does not read: {_EXPORT} (mindspore.export, file_format='ONNX')",
        "3": f"3 is TensorFlow, which opbuild does not read: {_EXPORT} (python -m tf2onnx.convert)",
    },
)
_MODE = WordValue(
    ("0", "1", "3", "6"),
    {"5": "5 is for GE's dump graphs, which opbuild does not write", "30": "30 is for one chip: use 0"},
)
_FOR_ALL = "leave out --optypelist_for_implmode, and the mode without _for_all is for all operators"
_IMPLMODE = WordValue(IMPLEMENTATION_MODES, {"high_precision_for_all": _FOR_ALL, "high_performance_for_all": _FOR_ALL})
_NO_HALF = "no kernel computes in another type than the model's or float32"
_PRECISION = WordValue(
    PRECISION_MODES,
    dict.fromkeys(
        (
            "force_fp16", "cube_fp16in_fp32out", "allow_fp32_to_fp16", "allow_fp32_to_bf16", "allow_mix_precision",
            "allow_mix_precision_fp16", "allow_mix_precision_bf16",
        ),
        _NO_HALF,
    ),
)  # fmt: skip
_LEVEL = WordValue(("0", "1", "2", "3", "4"))


@dataclass(frozen=True)
class CompileRequest:
    """The checked options of a command line.

    Attributes:
        mode: One of ``BUILD``, ``TO_JSON``, ``CHECK`` and ``SHOW``.
        model: The model's file; None in the modes that take ``om``.
        output: The file to write, with or without ``.om``.
        om: The file to show or to turn to JSON.
        json: Where to write it as JSON.
        check_report: Where to write what a check found.
        soc_version: The machine to build for.
        input_shapes: Shapes by input name, perhaps with open extents.
        variants: With ``--dynamic_batch_size`` and its like: for each size the shapes that have it.
        log: What is printed.
        dry_run: Whether to show what would be built and build nothing.
        explain: Whether to say of each operator why it was built.
        strict: Whether to fail if something could not be stored.
        atc: Whether operators are kept where ATC keeps them if nobody says where.
        settings: Keywords of ``Config.from_environment``.
    """

    mode: int
    model: Path | None
    output: Path | None
    om: Path | None
    json: Path | None
    check_report: Path
    soc_version: str
    input_shapes: Mapping[str, Shape]
    variants: tuple[Mapping[str, tuple[int, ...]], ...]
    log: str
    dry_run: bool
    explain: bool
    strict: bool
    atc: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Defaults:
    """The values that a command takes where its options do not say.

    Attributes:
        required: Options that must be given besides the model: for mode 3 ``framework``, for mode 0 all.
        values: What the command takes or, of folders, what ``--help`` says, of options in which the commands differ.
        atc: Whether operators are kept where ATC keeps them.
    """

    required: tuple[str, ...]
    values: Mapping[str, str]
    atc: bool

    def shown(self, option: str, usual: str) -> str:
        """Return an option's default as ``--help`` shows it, with two spaces before; empty for none.

        Args:
            option: The option's name.
            usual: The default where the command has no other.
        """
        if option in self.required:
            return "  [required]"
        own = self.values.get(option, usual)
        return f"  [default: {own}]" if own else ""


COMPILE_DEFAULTS = Defaults(
    (), {"op_compiler_cache_mode": "enable", "log": "info", "cache_path": DEFAULT_PLACE}, atc=False
)
ATC_DEFAULTS = Defaults(
    ("framework", "output", "soc_version"),
    {"op_compiler_cache_mode": "disable", "log": "warning",
     "op_compiler_cache_dir": "$ASCEND_CACHE_PATH/kernel_cache, else ~/atc_data/kernel_cache"},
    atc=True,
)  # fmt: skip


Parse = Callable[[str, str], Any]


def _callback(name: str, parse: Parse) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    return lambda context, parameter, text: None if text is None else parse(name, text)


def _option(name: str, parse: Parse, metavar: str, help_: str, default: str) -> Callable[[F], F]:
    spellings = (f"--{name}", "-o") if name == "output" else (f"--{name}",)
    return click.option(*spellings, name, callback=_callback(name, parse), metavar=metavar, help=f"{help_}{default}")


def _shapes(option: str, text: str) -> Mapping[str, Shape]:
    return parse_open_shape(required(option, text, 'write it as "data:1,3,224,224"'))


def _model(option: str, text: str) -> Path:
    return values.input_file(option, text, ONNX, OFFLINE)


def _soc_version(option: str, text: str) -> str:
    resolve_soc_version(required(option, text, f"it may be {BUILDABLE}"))
    return text


_OPTIONS: tuple[tuple[str, Parse, str, str, str], ...] = (
    ("mode", lambda o, t: int(_MODE.read(o, t)), "0|1|3|6",
     "0: build an .om file. 1: write a model or an .om file as JSON. 3: only check which operators have no kernel. "
     "6: show what an .om file holds.", "0"),
    ("model", lambda o, t: values.input_file(o, t, ONNX), "FILE.onnx", "The model, instead of MODEL.onnx.", ""),
    ("framework", _FRAMEWORK.read, "5", "The model's framework: 5 is ONNX.", "5"),
    ("output", lambda o, t: values.new_file(o, t, "the name of the file to write", ".om"), "FILE",
     "The file to write; .om is added.", "the model's name, here"),
    ("soc_version", _soc_version, "LEVEL", f"The level to build for: {BUILDABLE}.", "host"),
    ("input_shape", _shapes, "SHAPES",
     'Shapes of the inputs: "data:1,3,224,224;mask:1,128"; -1 is any dimension, 1~640 a range.', "the model's"),
    ("dynamic_batch_size", parse_sizes, '"1,2,4,8"',
     "Batch sizes of one .om file; they replace the -1 that comes first in --input_shape.", ""),
    ("dynamic_image_size", parse_sizes, '"224,224;448,448"',
     "Heights and widths of one .om file; they replace the last two of four dimensions, both -1 in --input_shape.", ""),
    ("dynamic_dims", parse_sizes, '"1,224;4,448"',
     "Lists of dimensions of one .om file; each replaces every -1 in --input_shape, in order.", ""),
    ("om", lambda o, t: values.input_file(o, t, OFFLINE, ONNX), "FILE.om",
     "The file for modes 1 and 6, which may also be given as an argument.", ""),
    ("json", lambda o, t: values.new_file(o, t, "the JSON file to write"), "FILE.json",
     "The file that mode 1 writes.", ""),
    ("check_report", lambda o, t: values.new_file(o, t, "the JSON file to write"), "FILE.json",
     "The file that mode 3 writes.", "check_result.json"),
    ("op_select_implmode", _IMPLMODE.read, "MODE", "high_performance or high_precision.", "high_performance"),
    ("optypelist_for_implmode", lambda o, t: required(o, t, "it must be names of operator types separated by commas"),
     "TYPES", "Operator types that --op_select_implmode is for.", "all"),
    ("precision_mode", _PRECISION.read, "MODE", "must_keep_origin_dtype or force_fp32.", "must_keep_origin_dtype"),
    ("op_compiler_cache_mode", WordValue(CACHE_MODES).read, "MODE",
     "enable: reuse operators and add to them. force: compile again and replace. disable: neither read nor write.", ""),
    ("cache_path", values.folder, "DIR",
     "Folder that holds rank_<id>/, the store of 'opbuild build' and 'opbuild run'.", ""),
    ("op_compiler_cache_dir", values.folder, "DIR",
     "Instead of it: folder with a folder of operators for each level, as ATC has it.", ""),
    ("remote", values.remote_url, "URL",
     "A store that others share: redis://, s3://, https://, webdav://, file://.",
     "$OPBUILD_REMOTE, else op_cache.ini"),
    ("op_debug_level", lambda o, t: int(_LEVEL.read(o, t)), "0|1|2|3|4",
     "Files for debugging operators; not 0: everything is compiled.", "0"),
    ("op_debug_config", lambda o, t: values.existing_file(o, t, "an existing file"), "FILE",
     "File with op_debug_config= and op_debug_list=.", ""),
    ("debug_dir", lambda o, t: values.path(o, t, "an existing folder"), "DIR",
     "Existing folder for the files of debugging.", "$ASCEND_WORK_PATH/kernel_meta, else ./kernel_meta"),
    ("log", WordValue(LEVELS).read, "LEVEL", "What is printed: debug, info, warning, error or null.", ""),
    ("workers", Whole(1).read, "N", "Operators compiled at once.", CORES),
    ("num_threads", Whole(1, 1024).read, "N", "Without effect: a file serves any number of threads.", THREADS),
)  # fmt: skip
"""Name, parser, metavar, help and usual default of each option that takes a value."""

_ONLY = {
    "json": (TO_JSON,),
    "om": (TO_JSON, SHOW),
    "check_report": (CHECK,),
    "dry_run": (BUILD, CHECK),
    "explain": (BUILD,),
    "strict": (BUILD,),
}
"""Options that mean something in some modes only."""

_DYNAMIC = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")
"""Options that list sizes."""


def compile_options(defaults: Defaults) -> Callable[[F], F]:
    """Return the options of a command, and, hidden, those of ATC that decide nothing.

    Args:
        defaults: What the command takes where its options do not say.
    """
    return option_group(
        click.argument("argument", metavar="[MODEL.onnx]", required=False, callback=_callback("model", _model)),
        *(
            click.option(f"--{name}", callback=_callback(name, check_foreign), hidden=True, expose_value=False)
            for name in reversed(FOREIGN)
        ),
        *(
            _option(name, parse, metavar, help_, defaults.shown(name, usual))
            for name, parse, metavar, help_, usual in _OPTIONS
        ),
        click.option("--dry_run", is_flag=True, help="Show what would be built, and build and write nothing."),
        click.option("--explain", is_flag=True, help="Say of each operator why it was built or reused."),
        click.option("--strict", is_flag=True, help="Fail, once it is built, if operators could not be stored."),
    )


def _place_argument(given: Mapping[str, Any], mode: int) -> Mapping[str, Any]:
    """Return the options with the argument: the model, or the .om file of the modes that read one.

    Raises:
        OptionError: If it is given twice.
        FileError: If the argument is no model where one is needed.
    """
    path: Path | None = given["argument"]
    if path is None or not (mode == SHOW or (mode == TO_JSON and kind_of(path) == OFFLINE)):
        if path is not None:
            require_kind(path, ONNX)
        return {**given, "model": one_model(path, given["model"])}
    if given["om"] is not None:
        raise OptionError(f"the file is given twice: {str(path)!r} and --om {str(given['om'])!r}", "give it once")
    return {**given, "om": path}


def make_request(given: Mapping[str, Any], defaults: Defaults) -> CompileRequest:
    """Check options together.

    Args:
        given: What each option and the argument gave, None if it is not on the command line.
        defaults: What the command takes where its options do not say.

    Raises:
        OptionError: If one is missing, or two do not go together.
    """
    mode = given["mode"] or BUILD
    options = dict(_place_argument(given, mode))
    options["op_compiler_cache_mode"] = options["op_compiler_cache_mode"] or defaults.values["op_compiler_cache_mode"]
    _require(options, mode, defaults)
    _check_debugging(options)
    _check_files(options)
    if options["cache_path"] is not None and options["op_compiler_cache_dir"] is not None:
        raise wrong(
            CONFLICTING,
            f"--cache_path is {str(options['cache_path'])!r}, and --op_compiler_cache_dir names another cache",
            "give one of them",
        )
    if options["optypelist_for_implmode"] and not options["op_select_implmode"]:
        raise wrong(
            DEPENDENT,
            f"--optypelist_for_implmode is {options['optypelist_for_implmode']!r}, and nothing is asked of these types",
            f"give --op_select_implmode too: {' or '.join(IMPLEMENTATION_MODES)}",
        )
    shapes: Mapping[str, Shape] = options["input_shape"] or {}
    model: Path | None = options["model"]
    return CompileRequest(
        mode=mode,
        model=model,
        output=options["output"] or (Path(model.stem) if model is not None else None),
        om=options["om"],
        json=options["json"],
        check_report=options["check_report"] or Path("check_result.json"),
        soc_version=options["soc_version"] or "host",
        input_shapes=shapes,
        variants=signatures(shapes, [options[name] for name in _DYNAMIC if options[name] is not None]),
        log=options["log"] or defaults.values["log"],
        dry_run=options["dry_run"],
        explain=options["explain"],
        strict=options["strict"],
        atc=defaults.atc,
        settings={name: value for name, value in options_in(options).items() if value is not None},
    )


def _require(options: Mapping[str, Any], mode: int, defaults: Defaults) -> None:
    needs = {
        BUILD: ("model", *defaults.required),
        CHECK: ("model", *(name for name in defaults.required if name == "framework")),
        TO_JSON: ("json",),
        SHOW: ("om",),
    }[mode]
    for name in needs:
        if options[name] is None:
            if name == "model" and not defaults.atc:
                raise wrong(MISSING, "the model is missing", "give its path: opbuild compile MODEL.onnx")
            metavar = next(metavar for option, _, metavar, _, _ in _OPTIONS if option == name)
            raise wrong(MISSING, f"--{name} is missing", f"mode {mode} needs it: --{name}={metavar}")
    if mode == TO_JSON and (options["om"] is None) == (options["model"] is None):
        raise wrong(MISSING, "--om is missing", "mode 1 needs one of --om and --model, the file to write as JSON")
    for name, modes in _ONLY.items():
        if options[name] not in (None, False) and mode not in modes:
            allowed = " or ".join(f"--mode={each}" for each in modes)
            given = f"--{name} is given" if options[name] is True else f"--{name} is {str(options[name])!r}"
            raise wrong(DEPENDENT, given, f"it is for {allowed} only")


def _check_files(options: Mapping[str, Any]) -> None:
    """Refuse to write over a file that is read."""
    read = [options[name] for name in ("model", "om") if options[name] is not None]
    for name in ("json", "check_report"):
        if options[name] is not None and any(same_file(options[name], each) for each in read):
            raise values.bad_value(name, options[name], "it must be another file than the one that is read")


def _check_debugging(options: Mapping[str, Any]) -> None:
    folder: Path | None = options["debug_dir"]
    if folder is None:
        return
    if not folder.is_dir():
        raise values.bad_value("debug_dir", folder, "it must be an existing folder")
    if not options["op_debug_level"]:
        raise wrong(
            DEPENDENT, f"--debug_dir is {str(folder)!r}, and --op_debug_level is 0", "give --op_debug_level from 1 to 4"
        )
