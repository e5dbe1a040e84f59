"""Settings: the only module that reads the environment.

Arguments win over the environment, the environment over defaults. ``Config.from_environment`` is called once a build,
so a script that sets a variable before it compiles is obeyed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.errors import OptionError
from opbuild.options import (
    Check,
    Setting,
    at_least,
    choice,
    flag,
    integer,
    one_of,
    operator_types,
    path,
    read_flag,
    setting,
)
from opbuild.platform.limits import cpu_limit
from opbuild.platform.paths import Path
from opbuild.platform.places import DefaultFolder, atc_place, started_rank, user_place
from opbuild.platform.records import dataclass, fields_of, replace
from opbuild.text.plural import close_to

REMOTE_MODES = ("off", "read", "write")
CACHE_MODES = ("enable", "force", "disable")
IMPLEMENTATION_MODES = ("high_performance", "high_precision")
PRECISION_MODES = ("must_keep_origin_dtype", "force_fp32")
DEBUG_LEVELS = range(5)
FIRST = ("answer", "build", "wait")
"""Who answers the first calls of a network whose kernels are missing: others until its own are compiled; others only
where these cannot be; nobody."""
TUNE_BANK = "opbuild_bank.jsonl"
"""The file of a tuning database, in its folder."""
COMPILER_MEMO = "compiler.json"
"""The file of a cache that remembers what compiled what it holds."""

_MINDSPORE_LEVEL = 3
"""``MS_COMPILER_OP_LEVEL`` where it is not set or not valid: no debugging, files kept."""


def available_cores() -> int:
    """Return the number of cores that this process may use, by its affinity mask and its container's limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = cpu_limit()
    return max(1, min(cores or 1, limit if limit is not None else cores or 1))


def _seconds(least: int, greatest: int) -> Check:
    """Return a reader of a variable that is a number of seconds."""
    read = integer(least, greatest)
    return lambda name, text: (seconds := read(name, text)) and float(seconds)


def _word(words: Sequence[str]) -> Check:
    """Return a reader of a variable that is one of some words, or blank."""
    check = one_of(words, " or ".join(words))
    return lambda name, text: check(name, text.strip()) if text.strip() else None


def _may_be_folder(text: str) -> bool:
    return os.path.isdir(text) or not os.path.exists(text)  # noqa: PTH110,PTH112  pathlib's may raise


def _job_folder(name: str, text: str) -> Path | None:
    """Return the folder as it stands: a job whose folder is gone is built without it."""
    return Path(os.path.abspath(text)) if text.strip() and "\0" not in text else None


def _told(variable: str, read: Check = lambda name, text: text) -> Setting:
    """Return the form of a setting that callers cannot give."""
    return Setting(variable=variable, read=read)


LOG_LEVELS = ("debug", "info", "warning")


def read_pack_flag(name: str, text: str) -> bool | None:
    """Return whether the release's pack is used, as the flags in a list of packs say; None: they say nothing."""
    try:
        flags = [read_flag(name, each) for each in text.split(os.pathsep) if not _is_pack_file(each)]
    except OptionError as error:
        raise OptionError(error.message, f"{error.hint}, or paths of packs with {os.pathsep!r} between them") from None
    return False if False in flags else None


def read_pack_files(_: str, text: str) -> tuple[Path, ...]:
    """Return the files in a list of packs, absolute."""
    return tuple(Path(os.path.abspath(each)) for each in text.split(os.pathsep) if _is_pack_file(each))


def _is_pack_file(text: str) -> bool:
    return "/" in text or text.endswith(".pack")


_NEW_FOLDER = "a folder, which is made if it is missing"
_LEVEL = Setting("whole", "give a whole number from 0 to 4", one_of(DEBUG_LEVELS, "an integer from 0 to 4"))
_REMOTE = Setting("text", "give a URL such as redis://host", variable="OPBUILD_REMOTE")
"""It is read where it is used; a text that is none stays out of errors, for it may hold a password."""

_THREADS = Setting(
    "whole",
    "give a whole number from 1 to 1024",
    at_least(1, 1024),
    "OPBUILD_NUM_THREADS",
    integer(1, 1024),
    available_cores,
)
_WORKERS = Setting(
    "whole",
    "give a whole number of at least 1",
    at_least(1),
    "MS_BUILD_PROCESS_NUM",
    integer(1, 24),
    lambda: min(24, available_cores()),
)


@dataclass(frozen=True)
class Config:
    """The settings of the environment and the caller, validated.

    Attributes:
        cache_path: Folder that holds ``rank_<id>`` folders (``OPBUILD_CACHE`` and ``MS_COMPILER_CACHE_PATH``, else the
            user's own store, for MindSpore programs the working folder).
        rank_id: This process's rank (``RANK_ID``, else what MPI or Slurm say, default 0).
        rank_size: How many ranks the job has (``RANK_SIZE``, else what MPI or Slurm say, default 1).
        by_mpi: Whether MPI or Slurm started this process as one of several.
        connect_timeout: Seconds without progress of any rank after which ranks that connect give up
            (``HCCL_CONNECT_TIMEOUT``, default 120).
        exec_timeout: The same for ranks that are connected (``HCCL_EXEC_TIMEOUT``, default 1836); 0: never.
        job_folder: Absolute private folder by which the ranks of a job meet (``OPBUILD_JOB_DIR``); None: there is none.
        device_id: The device that builds; the number at the end of file names (``DEVICE_ID``, else the rank
            on this host that MPI or Slurm say, default 0).
        forbid_compile: Nothing is compiled (``OPBUILD_FORBID_COMPILE=1``).
        first: Who answers the first calls of a network whose kernels are missing, one of ``FIRST`` (``OPBUILD_FIRST``;
            others, where the environment does not say it).
        workers: Operators compiled at once (``MS_BUILD_PROCESS_NUM``, 1 to 24; default the cores this process may use).
        num_threads: Threads that run one network (``OPBUILD_NUM_THREADS``; default the cores this process may use).
        uses_pack: Whether kernels are taken from the pack that the release brings, and from those of installed packages
            (``OPBUILD_PACK``; yes where the environment does not say no).
        model_packs: Files of packs that are asked besides (``OPBUILD_PACK``).
        copy_weights: Whether networks get their weights as copies, instead of mapping the cache's files
            (``OPBUILD_COPY_WEIGHTS``).
        compile_timeout: Seconds after which one compile counts as hung (``OPBUILD_COMPILE_TIMEOUT``, default 300).
        op_compiler_cache_mode: ``enable`` (reuse and add), ``force`` (compile again and replace) or ``disable``.
        op_compiler_cache_dir: Folder that holds ``<soc_version>`` folders and ``op_cache.ini``; None for the
            ``rank_<id>`` folders of ``cache_path``.
        soc_version: The level's name, which its folder has in ``op_compiler_cache_dir``.
        op_debug_level: 0 to 4, with ATC's meanings.
        op_debug_config: File with ``op_debug_config`` and ``op_debug_list``; None for none.
        debug_dir: Existing folder for the files of debugging; None for ``debug_folder``.
        debug_folder: Where the files of debugging go if nobody says where (``ASCEND_WORK_PATH``, else here, with
            ``kernel_meta``).
        op_select_implmode: ``high_performance`` or ``high_precision``.
        optypelist_for_implmode: Operator types that ``op_select_implmode`` is for; empty for all.
        precision_mode: ``must_keep_origin_dtype`` or ``force_fp32``.
        trust_shared_cache: Whether files are used that others can write to (``OPBUILD_TRUST_SHARED_CACHE``).
        remote: URL of a store that others share (``OPBUILD_REMOTE``); empty: none, unless ``op_cache.ini`` names one.
        remote_mode: ``off``, ``read`` or ``write`` (``OPBUILD_REMOTE_MODE``).
        signing_key: What files are signed with, or ``file:`` and a path (``OPBUILD_SIGNING_KEY``); not shown.
        tune_bank_path: Folder of the tuning database (``TUNE_BANK_PATH``); empty: ``tune_bank`` beside the
            cache.
        log: What is logged on standard error, one of ``LOG_LEVELS`` (``OPBUILD_LOG``); empty: as the program sets
            up ``logging``.
        uses_shipped_bank: Whether the database that the release brings counts below it (``OPBUILD_SHIPPED_BANK``).
        fills_cache: Whether the cache is to hold every operator that is used, as MindSpore's and ATC's do: the pack
            serves only where nothing can be compiled.
        record_shapes: File or folder in which the sizes are recorded that models are bound to
            (``OPBUILD_RECORD_SHAPES``); empty: they are not.
        remote_checks: Whether what one's own store has is looked for in the remote one, and what is damaged there
            written again.
        folder_problem: Why the cache's folder is not used: others can write to it; empty: it is used.
        warnings: What was wrong with the environment and did not stop the build; told when a session opens.
    """

    cache_path: Path = setting(Path("."), path(_NEW_FOLDER, lambda text: True, variable="OPBUILD_CACHE"))
    num_threads: int = setting(1, _THREADS)
    copy_weights: bool = setting(False, flag("OPBUILD_COPY_WEIGHTS"))
    workers: int = setting(1, _WORKERS)
    forbid_compile: bool = setting(False, flag("OPBUILD_FORBID_COMPILE"))
    op_compiler_cache_mode: str = setting(CACHE_MODES[0], choice(CACHE_MODES))
    op_compiler_cache_dir: Path | None = setting(None, path(_NEW_FOLDER, _may_be_folder))
    op_debug_level: int = setting(0, _LEVEL)
    op_debug_config: Path | None = setting(None, path("an existing file", os.path.isfile, what="a file"))
    debug_dir: Path | None = setting(None, path("an existing folder", os.path.isdir))
    op_select_implmode: str = setting(IMPLEMENTATION_MODES[0], choice(IMPLEMENTATION_MODES))
    optypelist_for_implmode: tuple[str, ...] = setting((), operator_types())
    precision_mode: str = setting(PRECISION_MODES[0], choice(PRECISION_MODES))
    exec_timeout: float = setting(1836.0, _told("HCCL_EXEC_TIMEOUT", _seconds(0, 2**31 - 1)))
    compile_timeout: float = setting(300.0, _told("OPBUILD_COMPILE_TIMEOUT", _seconds(1, 86400)))
    uses_pack: bool = setting(False, Setting(variable="OPBUILD_PACK", read=read_pack_flag, default=lambda: True))
    model_packs: tuple[Path, ...] = setting((), _told("OPBUILD_PACK", read_pack_files))
    first: str = setting(FIRST[1], Setting(variable="OPBUILD_FIRST", read=_word(FIRST), default=lambda: FIRST[0]))
    trust_shared_cache: bool = setting(False, _told("OPBUILD_TRUST_SHARED_CACHE", read_flag))
    remote: str = setting("", _REMOTE, repr=False)
    remote_mode: str = setting("read", _told("OPBUILD_REMOTE_MODE", _word(REMOTE_MODES)))
    signing_key: str = setting("", _told("OPBUILD_SIGNING_KEY"), repr=False)
    tune_bank_path: str = setting("", _told("TUNE_BANK_PATH"))
    log: str = setting("", _told("OPBUILD_LOG", _word(LOG_LEVELS)))
    uses_shipped_bank: bool = setting(True, _told("OPBUILD_SHIPPED_BANK", read_flag))
    record_shapes: str = setting("", _told("OPBUILD_RECORD_SHAPES"))
    job_folder: Path | None = setting(None, _told("OPBUILD_JOB_DIR", _job_folder))
    rank_id: int = 0
    rank_size: int = 1
    by_mpi: bool = False
    connect_timeout: float = 120.0
    device_id: int = 0
    debug_folder: Path = Path("kernel_meta")
    soc_version: str = ""
    fills_cache: bool = False
    remote_checks: bool = False
    folder_problem: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def cache_folder(self) -> Path:
        """The folder whose size is limited, absolute; ``network_meta`` is in it.

        ``rank_<id>``, or in ``op_compiler_cache_dir`` the level's folder.
        """
        if self.op_compiler_cache_dir is None:
            return Path(os.path.abspath(self.cache_path)) / f"rank_{self.rank_id}"
        return Path(os.path.abspath(self.op_compiler_cache_dir)) / (self.soc_version or "host")

    @property
    def precision(self) -> tuple[str, ...]:
        """The settings that decide how accurately a network is computed; equal for settings that mean the same."""
        types = sorted({*self.optypelist_for_implmode}) if self.op_select_implmode != IMPLEMENTATION_MODES[0] else []
        return (self.precision_mode, self.op_select_implmode, *types)

    @property
    def forces_float32(self) -> bool:
        """Whether other floating-point types are computed in float32."""
        return self.precision_mode == "force_fp32"

    @property
    def kernel_meta(self) -> Path:
        """The folder of operators."""
        return self.cache_folder / "kernel_meta" if self.op_compiler_cache_dir is None else self.cache_folder

    @property
    def network_meta(self) -> Path:
        """The folder of stored networks."""
        return self.cache_folder / "network_meta"

    @property
    def shared_folder(self) -> Path:
        """The folder, absolute, in which ranks or levels have theirs."""
        return Path(os.path.abspath(self.op_compiler_cache_dir or self.cache_path))

    @property
    def tune_bank(self) -> Path:
        """The file of the tuning database."""
        given = self.tune_bank_path.strip()
        return (Path(os.path.abspath(given)) if given else self.shared_folder / "tune_bank") / TUNE_BANK

    @property
    def policy_file(self) -> Path:
        """``op_cache.ini``: at the root of ``op_compiler_cache_dir``, or in ``rank_<id>``."""
        folder = self.cache_folder if self.op_compiler_cache_dir is None else self.cache_folder.parent
        return folder / "op_cache.ini"

    @property
    def uses_cache(self) -> bool:
        """Whether anything that was built before is used, or kept: not with ``disable``, and not in debugging."""
        return self.op_compiler_cache_mode != "disable" and self.op_debug_level == 0

    @property
    def uses_folder(self) -> bool:
        """Whether anything is read from or written to the cache's folder; the pack and the remote store need none."""
        return self.uses_cache and not self.folder_problem

    @property
    def names_remote(self) -> bool:
        """Whether a remote store is named here, and to be used."""
        return bool(self.remote) and self.remote_mode != "off" and self.uses_cache and not self.forces

    @property
    def forces(self) -> bool:
        """Whether stored items are replaced without being used."""
        return self.uses_cache and self.op_compiler_cache_mode == "force"

    @property
    def compiler_memo(self) -> Path | None:
        """The file that remembers the compiler's digest; None: it is read each time."""
        return self.network_meta / COMPILER_MEMO if self.uses_folder and not self.forces else None

    @staticmethod
    def from_environment(
        *, mindspore: bool = False, atc: bool = False, environ: Mapping[str, str] | None = None, **given: Any
    ) -> Config:
        """Read the settings.

        Args:
            mindspore: Whether a MindSpore program asks, which keeps what it builds in the working folder and for which
                ``MS_COMPILER_OP_LEVEL`` counts: 0 leaves no files behind (mode ``disable``), 1, 2 and 4 are those of
                ``op_debug_level``, 3, the default, is no debugging.
            atc: Whether ``opbuild atc`` asks, whose operators are where ATC keeps them.
            environ: Read instead of the process's environment, for tests.
            given: Options by name, as ``opbuild.compile`` takes them; they win over the environment.

        Raises:
            OptionError: If a value is not allowed; the message names the option, the value and what is allowed.
        """
        if unknown := given.keys() - OPTIONS.keys():
            raise TypeError(f"there is no option {min(unknown)!r}")
        env = os.environ if environ is None else environ
        warnings: list[str] = []
        if mindspore and given.get("op_debug_level") is None:
            given = _with_mindspore_level(given, env, warnings)
        place = _place(given, env, mindspore=mindspore, atc=atc, known_users=environ is None)
        if atc and given.get("op_compiler_cache_dir") is None and given.get("cache_path") is None:
            given = {**given, "op_compiler_cache_dir": place.folder}
        values = {name: how.value(name, given.get(name), env, _DEFAULTS[name]) for name, how in _SETTINGS.items()}
        if place.warning and values["op_compiler_cache_mode"] != "disable":
            warnings.append(place.warning)
        rank, size, device = started_rank(env)
        rank = _integer(env, "RANK_ID", rank, 0)
        if rank == 0:  # the ranks of a job have one environment
            warnings += _unknown_variables(env)
        return Config(
            **{**values, "cache_path": place.folder},
            rank_id=rank,
            rank_size=_integer(env, "RANK_SIZE", size, 1),
            by_mpi=size > 1,
            connect_timeout=_connect_timeout(env, rank, warnings),
            device_id=_integer(env, "DEVICE_ID", device, 0),
            debug_folder=Path(env.get("ASCEND_WORK_PATH") or ".") / "kernel_meta",
            fills_cache=mindspore or atc,
            warnings=tuple(warnings),
        )

    def waiting(self) -> Config:
        """Return the same for who waits for kernels that can be compiled."""
        return replace(self, first=FIRST[1]) if self.first == FIRST[0] else self


_SETTINGS: Mapping[str, Setting] = {
    name: each.metadata["setting"] for name, each in fields_of(Config).items() if "setting" in each.metadata
}
_DEFAULTS = {name: each.default for name, each in fields_of(Config).items()}

_VARIABLES = {how.variable for how in _SETTINGS.values()}
_OWN, _OF_TESTS = "OPBUILD_", ("OPBUILD_FUZZ", "OPBUILD_TEST")
"""What the names of opbuild's own variables begin with, and of those that its tests read."""

OPTIONS: Mapping[str, Setting] = {name: how for name, how in _SETTINGS.items() if how.kind}
"""The settings that callers may give, in the order in which they are shown."""


def options_in(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a function's arguments, by name, that are options."""
    return {name: value for name, value in arguments.items() if name in OPTIONS}


def _unknown_variables(env: Mapping[str, str]) -> list[str]:
    """Return warnings about variables that have a name as opbuild's have, and are none: slips of the pen."""
    found = sorted({name for name in env if name.startswith(_OWN) and not name.startswith(_OF_TESTS)} - _VARIABLES)
    if not found:
        return []
    known = [name.removeprefix(_OWN) for name in _VARIABLES if name.startswith(_OWN)]
    near = [close_to(name.removeprefix(_OWN), known) for name in found]
    return [
        f"{name} is set, and opbuild knows no such variable{f': did you mean {_OWN}{meant}?' if meant else ''}"
        for name, meant in zip(found, near, strict=True)
    ]


PLACES = ("OPBUILD_CACHE", "MS_COMPILER_CACHE_PATH")
"""Variables that name the folder in which artifacts are kept: opbuild's own, and MindSpore's, which wins for its
programs, since these say where they look for what was built."""


def _place(
    given: Mapping[str, Any], env: Mapping[str, str], *, mindspore: bool, atc: bool, known_users: bool
) -> DefaultFolder:
    """Return the folder in which artifacts are kept."""
    cache_path, cache_dir = given.get("cache_path"), given.get("op_compiler_cache_dir")
    if atc and cache_dir is None and cache_path is None:
        return atc_place(env, known_users=known_users)
    name, named = "cache_path", cache_path or "."
    if cache_path is None:
        said = [(each, env[each]) for each in (PLACES[::-1] if mindspore else PLACES) if env.get(each)]
        name, named = said[0] if said else (name, "")
    if mindspore or cache_dir is not None or named:
        return DefaultFolder(OPTIONS["cache_path"].check(name, named or "."))
    return user_place(env, known_users=known_users)


def _with_mindspore_level(given: Mapping[str, Any], env: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    """Return options with those that ``MS_COMPILER_OP_LEVEL`` sets for debugging and for the cache."""
    number = _mindspore_level(env, warnings)
    options: dict[str, Any] = {"op_debug_level": 0 if number == _MINDSPORE_LEVEL else number}
    if number == 0 and given.get("op_compiler_cache_mode") is None:
        options["op_compiler_cache_mode"] = "disable"
    return {**given, **options}


def atc_cache() -> Path:
    """Return the folder in which ``opbuild atc`` keeps operators if nobody says where."""
    return atc_place(os.environ).folder


def quota_environment(environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return ``ASCEND_MAX_OP_CACHE_SIZE`` and ``ASCEND_REMAIN_CACHE_SIZE_RATIO`` as they stand, "" if not set."""
    env = os.environ if environ is None else environ
    return env.get("ASCEND_MAX_OP_CACHE_SIZE", "").strip(), env.get("ASCEND_REMAIN_CACHE_SIZE_RATIO", "").strip()


def _integer(env: Mapping[str, str], name: str, default: int, least: int) -> int:
    return int(Setting(variable=name, read=integer(least, 2**31 - 1)).value(name, None, env, default))


def _mindspore_level(env: Mapping[str, str], warnings: list[str]) -> int:
    text = env.get("MS_COMPILER_OP_LEVEL", "").strip()
    if text in map(str, DEBUG_LEVELS):
        return int(text)
    if text:
        warnings.append(
            f"MS_COMPILER_OP_LEVEL is {text!r}; it must be an integer from 0 to 4, {_MINDSPORE_LEVEL} is used"
        )
    return _MINDSPORE_LEVEL


def _connect_timeout(env: Mapping[str, str], rank: int, warnings: list[str]) -> float:
    """Return ``HCCL_CONNECT_TIMEOUT``; a value outside the range of HCCL is obeyed, and one rank says so."""
    seconds = _integer(env, "HCCL_CONNECT_TIMEOUT", 120, 1)
    if not 120 <= seconds <= 7200 and rank == 0:
        warnings.append(f"HCCL_CONNECT_TIMEOUT is {seconds}, outside 120 to 7200; {seconds} s are used")
    return float(seconds)


def redis_credentials(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the user and the password of Redis, as its clients find them, by OpenDAL's names."""
    env = os.environ if environ is None else environ
    found = {"username": env.get("REDIS_USERNAME"), "password": env.get("REDIS_PASSWORD") or env.get("REDISCLI_AUTH")}
    return {name: value for name, value in found.items() if value}


def netrc_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return the file in which programs find the credentials of a web server."""
    env = os.environ if environ is None else environ
    return Path(env.get("NETRC") or os.path.expanduser("~/.netrc"))  # noqa: PTH111  pathlib's raises without a home


def plain_terminal() -> bool:
    """Return whether the user wants no colours, or has a terminal without."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def compiler_environment() -> dict[str, str]:
    """Return the environment in which compilers run: fixed, so that equal operators give equal objects everywhere.

    Only what the interpreter itself needs to start and to find its libraries is taken over.
    """
    kept = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "TMPDIR")
    fixed = {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {name: os.environ[name] for name in kept if name in os.environ} | fixed


def inherited_environment() -> dict[str, str]:
    """Return a copy of the whole environment, for ranks that are started here."""
    return dict(os.environ)
