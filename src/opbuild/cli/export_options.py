"""The options of ``opbuild export`` and ``opbuild atc``, and the request that they are once checked together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import click

from opbuild.cli.build_log import LEVELS
from opbuild.cli.options import (
    CONFLICTING,
    CORES,
    DEFAULT_PLACE,
    DEPENDENT,
    MISSING,
    REFUSED,
    THREADS,
    F,
    Whole,
    WordValue,
    bad_value,
    existing_file,
    folder,
    input_file,
    new_file,
    one_model,
    option_group,
    path,
    remote_url,
    required,
    value_option,
    wrong,
)
from opbuild.config import CACHE_MODES, IMPLEMENTATION_MODES, PRECISION_MODES, options_in
from opbuild.errors import OptionError
from opbuild.frontend.input_shape import Shape, format_input_shape, open_axes, parse_open_shape
from opbuild.kernel.opdesc import FREE
from opbuild.platform.files.kinds import OFFLINE, ONNX, kind_of, require_kind
from opbuild.platform.files.writing import same_file
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.target.host import BUILDABLE, resolve_level
from opbuild.text.plural import counted

_RANGES = 'give the sizes as ranges: --shape "data:1,3,1~640,1~640"'
_NO_BANK = "TUNE_BANK_PATH names the tuning database of 'opbuild tune', which every build reads"
_NO_TYPES = "element types are the model's; --precision_mode and Cast nodes in the model change them"
_QUANTIZED = "quantize or prune the model before it is exported"
_ONE_MACHINE = "an offline model is for one machine; --target names it"


class Foreign(NamedTuple):
    """An option of ATC that opbuild reads and does not need.

    Attributes:
        accepted: Values that ask for what opbuild does anyway, or for nothing that a CPU has.
        instead: What to do where another value is wanted.
    """

    accepted: tuple[str, ...]
    instead: str


_SWITCH = ("0", "1")
_BOOLEAN = ("true", "false")

FOREIGN: dict[str, Foreign] = {
    # The model that comes in
    "weight": Foreign((), "an ONNX model holds its weights: leave the option out"),
    "input_format": Foreign(("NCHW", "ND"), "ONNX's order of dimensions is kept; a Transpose in the model changes it"),
    "input_shape_range": Foreign((), _RANGES),
    "input_hint_shape": Foreign((), "no hint is needed: leave the option out"),
    "singleop": Foreign((), "write a model of one operator, or use @opbuild.operator"),
    "insert_op_conf": Foreign((), "AIPP is a unit of NPUs: put the preprocessing into the model, or before it"),
    "op_name_map": Foreign((), "operators keep ONNX's names; @opbuild.operator defines further ones"),
    "out_nodes": Foreign((), "cut the model before: onnx.utils.extract_model"),
    **dict.fromkeys(("input_fp16_nodes", "modify_mixlist", "keep_dtype", "customize_dtypes"), Foreign((), _NO_TYPES)),
    "enable_scope_fusion_passes": Foreign((), "it is for TensorFlow's models"),
    "is_input_adjust_hw_layout": Foreign(("false",), "inputs have ONNX's layout"),
    "is_output_adjust_hw_layout": Foreign(("false",), "outputs have ONNX's layout"),
    # The file that comes out
    "output_type": Foreign((), "outputs have the model's element types; a Cast in the model changes them"),
    "host_env_os": Foreign(("linux",), _ONE_MACHINE),
    "host_env_cpu": Foreign((), _ONE_MACHINE),
    "external_weight": Foreign(("0",), "weights are in the .om file, and mapped"),
    "save_original_model": Foreign(("false",), "an .om file holds no copy of the model"),
    "display_model_info": Foreign(("0",), "--mode=6 --om=FILE.om shows it"),
    "dump_mode": Foreign(("0",), "--mode=1 writes the model as JSON"),
    "export_compile_stat": Foreign(("0", "1"), "the record of the build is always in the .om file"),
    # The machine
    "core_type": Foreign(("AiCore",), "a CPU's cores are of one type"),
    "aicore_num": Foreign((), "--num_threads says how many cores run the model"),
    "virtual_type": Foreign(("0",), "it is for virtual NPUs"),
    "buffer_optimize": Foreign(("l1_optimize", "l2_optimize", "off_optimize"), "it is for buffers of NPUs"),
    "enable_single_stream": Foreign(_BOOLEAN, "a model runs in its caller's thread"),
    **dict.fromkeys(("ac_parallel_enable", "tiling_schedule_optimize"), Foreign(_SWITCH, "it is for NPUs")),
    "status_check": Foreign(("0",), 'overflow is not looked for; --op_debug_config with "oom" checks bounds'),
    "atomic_clean_policy": Foreign(_SWITCH, "memory is cleaned where it must be"),
    # How operators are compiled
    "precision_mode_v2": Foreign(("origin",), _NO_TYPES),
    "op_precision_mode": Foreign(
        (), "--op_select_implmode and --optypelist_for_implmode say which operators are precise"
    ),
    "allow_hf32": Foreign(("false",), "CPUs have no HF32"),
    "deterministic": Foreign(_SWITCH, "results are the same in each run anyway"),
    "fusion_switch_file": Foreign((), "what is fused is not decided by the user"),
    "enable_small_channel": Foreign(_SWITCH, "first layers have kernels of their own"),
    "disable_reuse_memory": Foreign(("0",), "memory is reused"),
    "oo_level": Foreign(("O1", "O3"), "the graph is always optimized"),
    "oo_constant_folding": Foreign(("true",), "constants are always folded"),
    "oo_dead_code_elimination": Foreign(("true",), "what is not needed is always left out"),
    "optimization_switch": Foreign((), "the graph is always optimized"),
    "shape_generalized_build_mode": Foreign((), "operators serve any shape; --shape says which the file serves"),
    **dict.fromkeys(("auto_tune_mode", "mdl_bank_path", "op_bank_path"), Foreign((), _NO_BANK)),
    # Weights
    "enable_compress_weight": Foreign(("false",), _QUANTIZED),
    **dict.fromkeys(("compress_weight_conf", "compression_optimize_conf"), Foreign((), _QUANTIZED)),
    **dict.fromkeys(("sparsity", "quant_dumpable"), Foreign(("0",), _QUANTIZED)),
    "is_weight_clip": Foreign(_SWITCH, "weights are never converted"),
    # Several devices
    **dict.fromkeys(("distributed_cluster_build", "enable_graph_parallel"), Foreign(("0",), _ONE_MACHINE)),
    **dict.fromkeys(
        ("cluster_config", "graph_parallel_option_path", "shard_model_dir", "model_relation_config"),
        Foreign((), _ONE_MACHINE),
    ),
}
"""By the option's name."""


def check_foreign(option: str, value: str) -> None:
    """Take an option that decides nothing, or say which to use instead."""
    accepted, instead = FOREIGN[option]
    if value in accepted:
        return
    allowed = f"only {' and '.join(accepted)} can be given" if accepted else "no value of it can be given"
    required(option, value, allowed)
    raise wrong(REFUSED, f"--{option} is {value!r}, which opbuild does not serve", f"{allowed}; {instead}")


ATC_NAMES = {"target": "soc_version", "shape": "input_shape"}
"""ATC's names of options that have others in opbuild."""


def in_atc_names(text: str) -> str:
    """Return a text with the options in it spelled as ATC spells them."""
    return re.sub(rf"--({'|'.join(ATC_NAMES)})\b", lambda found: f"--{ATC_NAMES[found[1]]}", text)


MOST = 100
"""Values of each option at most, as ATC has it."""

Signature = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class DynamicSizes:
    """The sizes that an option lists: its name without dashes, its value, and the numbers of each size."""

    option: str
    text: str
    sizes: tuple[tuple[int, ...], ...]


class _Form(NamedTuple):
    """The values that one of the options takes, and the axes of an input that ``--shape`` must leave open."""

    takes: str
    opens: str
    example: str
    axes: tuple[list[int], ...] | None = None


_FORMS = {
    "dynamic_batch_size": _Form(
        'sizes of at least 1, such as "1,2,4,8"', "-1 first and nowhere else", "data:-1,3,224,224", ([0],)
    ),
    "dynamic_image_size": _Form(
        'heights and widths of at least 1, such as "224,224;448,448"',
        "-1 for height and width, the last two of four, and nowhere else", "data:1,3,-1,-1", ([2, 3],)
    ),
    "dynamic_dims": _Form(
        'lists of dimensions of at least 1, all as long, such as "1,224;4,448"', "-1 for each dimension of a list",
        "data:-1,3,-1,224"
    ),
}  # fmt: skip


def parse_sizes(option: str, text: str) -> DynamicSizes:
    """Parse the value of one of the options."""
    must = f"it must be 2 to {MOST} different {_FORMS[option].takes}"
    required(option, text, must)
    between = "," if option == "dynamic_batch_size" else ";"
    lists = [[piece.strip() for piece in part.split(",")] for part in text.split(between)]
    if any(not re.fullmatch("0*[1-9][0-9]{0,8}", piece) for pieces in lists for piece in pieces):
        raise bad_value(option, text, must)
    sizes = tuple(tuple(map(int, pieces)) for pieces in lists)
    lengths = {len(each) for each in sizes}
    right = len(lengths) == 1 and (option != "dynamic_image_size" or lengths == {2})
    if not right or not 2 <= len(sizes) <= MOST or len(set(sizes)) != len(sizes):
        raise bad_value(option, text, must)
    return DynamicSizes(option, text, sizes)


def signatures(shapes: Mapping[str, Shape], given: list[DynamicSizes]) -> tuple[Signature, ...]:
    """Return for each size the shapes of the inputs that ``--shape`` leaves open; empty if no option is given."""
    if not given:
        return ()
    sizes, form = given[0], _FORMS[given[0].option]
    if len(given) > 1:
        raise wrong(
            CONFLICTING,
            f"--{sizes.option} is {sizes.text!r}, and --{given[1].option} is {given[1].text!r}",
            "give one of them",
        )
    opened = {name: open_axes(shape) for name, shape in shapes.items() if open_axes(shape)}
    if not opened:
        raise wrong(
            DEPENDENT,
            f"--{sizes.option} is {sizes.text!r}, and no input is open for it",
            f'give --shape with {form.opens}, such as "{form.example}"',
        )
    for name, axes in opened.items():
        if not _fills(sizes.option, shapes[name], axes):
            shown = format_input_shape({name: shapes[name]})
            raise wrong(
                CONFLICTING,
                f"--{sizes.option} is {sizes.text!r}, and --shape has {shown!r}",
                f"it must have {form.opens}; or leave --{sizes.option} out and give ranges",
            )
    wanted = sum(map(len, opened.values()))
    if sizes.option == "dynamic_dims" and wanted != len(sizes.sizes[0]):
        raise wrong(
            CONFLICTING,
            f"--dynamic_dims is {sizes.text!r}, and --shape has {wanted} times -1",
            f"each of its lists must have {counted(wanted, 'extent')}",
        )
    return tuple(_signature(shapes, opened, sizes.option, each) for each in sizes.sizes)


def _fills(option: str, shape: Shape, axes: list[int]) -> bool:
    """Return whether an option's numbers say all that a shape leaves open."""
    if any(shape[axis] != FREE for axis in axes):
        return False
    allowed = _FORMS[option].axes
    return allowed is None or (axes in allowed and (option != "dynamic_image_size" or len(shape) == 4))


def _signature(
    shapes: Mapping[str, Shape], opened: Mapping[str, list[int]], option: str, numbers: tuple[int, ...]
) -> Signature:
    """Return the open inputs with numbers for their -1: each input takes all, or, with ``dynamic_dims``, the next."""
    position = count()
    found: dict[str, tuple[int, ...]] = {}
    for name, axes in opened.items():
        taken = [next(position) for _ in axes] if option == "dynamic_dims" else range(len(axes))
        by_axis = dict(zip(axes, (numbers[index] for index in taken), strict=True))
        found[name] = tuple(
            by_axis.get(axis, extent if isinstance(extent, int) else FREE) for axis, extent in enumerate(shapes[name])
        )
    return found


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
class ExportRequest:
    """The checked options of a command line, by their names; None where one is not given and has no default.

    Attributes:
        input_shapes: Shapes by input name, perhaps with open extents.
        variants: With ``--dynamic_batch_size`` and its like: for each size the shapes that have it.
        atc: Whether operators are kept where ATC keeps them if nobody says where.
        settings: Keywords of ``Config.from_environment``.
    """

    mode: int
    model: Path | None
    output: Path | None
    om: Path | None
    json: Path | None
    check_report: Path
    target: str
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
    """

    required: tuple[str, ...]
    values: Mapping[str, str]
    atc: bool

    def shown(self, option: str, usual: str) -> str:
        """Return an option's default as ``--help`` shows it, with two spaces before; empty for none."""
        if option in self.required:
            return "  [required]"
        own = self.values.get(option, usual)
        return f"  [default: {own}]" if own else ""


EXPORT_DEFAULTS = Defaults(
    (), {"op_compiler_cache_mode": "enable", "log": "info", "cache_path": DEFAULT_PLACE}, atc=False
)
ATC_DEFAULTS = Defaults(
    ("framework", "output", "target"),
    {"op_compiler_cache_mode": "disable", "log": "warning",
     "op_compiler_cache_dir": "$ASCEND_CACHE_PATH/kernel_cache, else ~/atc_data/kernel_cache"},
    atc=True,
)  # fmt: skip


Parse = Callable[[str, str], Any]


def _callback(name: str, parse: Parse) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    return lambda context, parameter, text: None if text is None else parse(name, text)


def _option(name: str, parse: Parse, metavar: str, text: str, *, atc: bool) -> Callable[[F], F]:
    own, older = f"-o --{name}" if name == "output" else f"--{name}", ""
    if name in ATC_NAMES:
        own, older = (in_atc_names(own), "") if atc else (own, in_atc_names(own))
    shown = in_atc_names(text) if atc else text
    return value_option(f"{own} {name}", metavar, shown, older=older, callback=_callback(name, parse))


def _shapes(option: str, text: str) -> Mapping[str, Shape]:
    return parse_open_shape(required(option, text, 'write it as "data:1,3,224,224"'))


def _model(option: str, text: str) -> Path:
    return input_file(option, text, ONNX, OFFLINE)


def _target(option: str, text: str) -> str:
    resolve_level(required(option, text, f"it may be {BUILDABLE}"))
    return text


_OPTIONS: tuple[tuple[str, Parse, str, str, str], ...] = (
    ("mode", lambda o, t: int(_MODE.read(o, t)), "0|1|3|6",
     "0: build an .om file. 1: write a model or an .om file as JSON. 3: only check which operators have no kernel. "
     "6: show what an .om file holds.", "0"),
    ("model", lambda o, t: input_file(o, t, ONNX), "FILE.onnx", "The model, instead of MODEL.onnx.", ""),
    ("framework", _FRAMEWORK.read, "5", "The model's framework: 5 is ONNX.", "5"),
    ("output", lambda o, t: new_file(o, t, "the name of the file to write", ".om"), "FILE",
     "The file to write; .om is added.", "the model's name, here"),
    ("target", _target, "LEVEL", f"The level to build for: {BUILDABLE}.", "host"),
    ("shape", _shapes, "SHAPES",
     'Shapes of the inputs: "data:1,3,224,224;mask:1,128"; -1 is any dimension, 1~640 a range.', "the model's"),
    ("dynamic_batch_size", parse_sizes, '"1,2,4,8"',
     "Batch sizes of one .om file; they replace the -1 that comes first in --shape.", ""),
    ("dynamic_image_size", parse_sizes, '"224,224;448,448"',
     "Heights and widths of one .om file; they replace the last two of four dimensions, both -1 in --shape.", ""),
    ("dynamic_dims", parse_sizes, '"1,224;4,448"',
     "Lists of dimensions of one .om file; each replaces every -1 in --shape, in order.", ""),
    ("om", lambda o, t: input_file(o, t, OFFLINE, ONNX), "FILE.om",
     "The file for modes 1 and 6, which may also be given as an argument.", ""),
    ("json", lambda o, t: new_file(o, t, "the JSON file to write"), "FILE.json",
     "The file that mode 1 writes.", ""),
    ("check_report", lambda o, t: new_file(o, t, "the JSON file to write"), "FILE.json",
     "The file that mode 3 writes.", "check_result.json"),
    ("op_select_implmode", _IMPLMODE.read, "MODE", "high_performance or high_precision.", "high_performance"),
    ("optypelist_for_implmode", lambda o, t: required(o, t, "it must be names of operator types separated by commas"),
     "TYPES", "Operator types that --op_select_implmode is for.", "all"),
    ("precision_mode", _PRECISION.read, "MODE", "must_keep_origin_dtype or force_fp32.", "must_keep_origin_dtype"),
    ("op_compiler_cache_mode", WordValue(CACHE_MODES).read, "MODE",
     "enable: reuse operators and add to them. force: compile again and replace. disable: neither read nor write.", ""),
    ("cache_path", folder, "DIR",
     "Folder that holds rank_<id>/, the store of 'opbuild compile' and 'opbuild run'.", ""),
    ("op_compiler_cache_dir", folder, "DIR",
     "Instead of it: folder with a folder of operators for each level, as ATC has it.", ""),
    ("remote", remote_url, "URL",
     "A store that others share: redis://, s3://, https://, webdav://, file://.",
     "$OPBUILD_REMOTE, else op_cache.ini"),
    ("op_debug_level", lambda o, t: int(_LEVEL.read(o, t)), "0|1|2|3|4",
     "Files for debugging operators; not 0: everything is compiled.", "0"),
    ("op_debug_config", lambda o, t: existing_file(o, t, "an existing file"), "FILE",
     "File with op_debug_config= and op_debug_list=.", ""),
    ("debug_dir", lambda o, t: path(o, t, "an existing folder"), "DIR",
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


def export_options(defaults: Defaults) -> Callable[[F], F]:
    """Return the options of a command, and, hidden, those of ATC that decide nothing."""
    return option_group(
        click.argument("argument", metavar="[MODEL.onnx]", required=False, callback=_callback("model", _model)),
        *(
            click.option(f"--{name}", callback=_callback(name, check_foreign), hidden=True, expose_value=False)
            for name in reversed(FOREIGN)
        ),
        *(
            _option(name, parse, metavar, help_ + defaults.shown(name, usual), atc=defaults.atc)
            for name, parse, metavar, help_, usual in _OPTIONS
        ),
        click.option("--dry_run", is_flag=True, help="Show what would be built, and build and write nothing."),
        click.option("--explain", is_flag=True, help="Say of each operator why it was built or reused."),
        click.option("--strict", is_flag=True, help="Fail, once it is built, if operators could not be stored."),
    )


def _place_argument(given: Mapping[str, Any], mode: int) -> Mapping[str, Any]:
    """Return the options with the argument: the model, or the .om file of the modes that read one."""
    path: Path | None = given["argument"]
    if path is None or not (mode == SHOW or (mode == TO_JSON and kind_of(path) == OFFLINE)):
        if path is not None:
            require_kind(path, ONNX)
        return {**given, "model": one_model(path, given["model"])}
    if given["om"] is not None:
        raise OptionError(f"the file is given twice: {str(path)!r} and --om {str(given['om'])!r}", "give it once")
    return {**given, "om": path}


def make_request(given: Mapping[str, Any], defaults: Defaults) -> ExportRequest:
    """Check options together; one that is None is not on the command line."""
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
    shapes: Mapping[str, Shape] = options["shape"] or {}
    model: Path | None = options["model"]
    return ExportRequest(
        mode=mode,
        model=model,
        output=options["output"] or (Path(model.stem) if model is not None else None),
        om=options["om"],
        json=options["json"],
        check_report=options["check_report"] or Path("check_result.json"),
        target=options["target"] or "host",
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
                raise wrong(MISSING, "the model is missing", "give its path: opbuild export MODEL.onnx")
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
            raise bad_value(name, options[name], "it must be another file than the one that is read")


def _check_debugging(options: Mapping[str, Any]) -> None:
    folder: Path | None = options["debug_dir"]
    if folder is None:
        return
    if not folder.is_dir():
        raise bad_value("debug_dir", folder, "it must be an existing folder")
    if not options["op_debug_level"]:
        raise wrong(
            DEPENDENT, f"--debug_dir is {str(folder)!r}, and --op_debug_level is 0", "give --op_debug_level from 1 to 4"
        )
