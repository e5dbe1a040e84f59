"""Settings: the only module that reads the environment.

Arguments win over the environment, the environment over defaults. ``Config.from_environment`` is called once a build,
so a script that sets a variable before it compiles is obeyed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opbuild.errors import OptionError
from opbuild.platform.cgroups import cpu_limit
from opbuild.platform.places import Place, atc_place, user_place
from opbuild.platform.starters import started_rank

CACHE_MODES = ("enable", "force", "disable")
IMPLEMENTATION_MODES = ("high_performance", "high_precision")
PRECISION_MODES = ("must_keep_origin_dtype", "force_fp32")
DEBUG_LEVELS = range(5)
COMPILER_MEMO = "compiler.json"
"""The file of a cache that remembers what compiled what it holds."""

_MINDSPORE_LEVEL = 3
"""``MS_COMPILER_OP_LEVEL`` where it is not set or not valid: no debugging, files kept."""


@dataclass(frozen=True)
class Config:
    """What the environment and the caller decided, validated.

    Attributes:
        cache_path: Folder that holds ``rank_<id>`` folders (``MS_COMPILER_CACHE_PATH``, else the user's own store, for
            MindSpore programs the working folder).
        rank_id: This process's rank (``RANK_ID``, else what MPI or Slurm say, default 0).
        rank_size: How many ranks the job has (``RANK_SIZE``, else what MPI or Slurm say, default 1).
        by_mpi: Whether MPI or Slurm started this process as one of several.
        connect_timeout: Seconds without progress of any rank after which ranks that connect give up
            (``HCCL_CONNECT_TIMEOUT``, default 120).
        exec_timeout: The same for ranks that are connected (``HCCL_EXEC_TIMEOUT``, default 1836); 0: never.
        job_folder: Absolute private folder by which the ranks of a job meet (``OPBUILD_JOB_DIR``); None: there is none.
        device_id: The device that builds; the number at the end of file names (``DEVICE_ID``, else the rank
            on this host that MPI or Slurm say, default 0).
        forbid_compile: Any compile is an error (``OPBUILD_FORBID_COMPILE=1``).
        workers: Operators compiled at once (``MS_BUILD_PROCESS_NUM``, 1 to 24; default the cores this process may use).
        num_threads: Threads that run one network (``OPBUILD_NUM_THREADS``; default the cores this process may use).
        copy_weights: Whether networks get their weights as copies, instead of mapping the cache's files
            (``OPBUILD_COPY_WEIGHTS``).
        compile_timeout: Seconds after which one compile counts as hung (``OPBUILD_COMPILE_TIMEOUT``, default 300).
        linker: Path of the linker to use (``OPBUILD_LINKER``), empty to search for one.
        op_compiler_cache_mode: ``enable`` (reuse and add), ``force`` (compile again and replace) or ``disable``.
        op_compiler_cache_dir: Folder that holds ``<soc_version>`` folders and ``op_cache.ini``; None for the
            ``rank_<id>`` folders of ``cache_path``.
        soc_version: The target in full; the name of its folder in ``op_compiler_cache_dir``.
        op_debug_level: 0 to 4, with ATC's meanings.
        op_debug_config: File with ``op_debug_config`` and ``op_debug_list``; None for none.
        debug_dir: Existing folder for the files of debugging; None for ``debug_folder``.
        debug_folder: Where the files of debugging go if nobody says where (``ASCEND_WORK_PATH``, else here, with
            ``kernel_meta``).
        op_select_implmode: ``high_performance`` or ``high_precision``.
        optypelist_for_implmode: Operator types that ``op_select_implmode`` is for; empty for all.
        precision_mode: ``must_keep_origin_dtype`` or ``force_fp32``.
        trust_shared_cache: Whether files are used that others can write to (``OPBUILD_TRUST_SHARED_CACHE``).
        signing_key: What files are signed with, or ``file:`` and a path (``OPBUILD_SIGNING_KEY``); not shown.
        warnings: What was wrong with the environment and did not stop the build; told when a session opens.
    """

    cache_path: Path = field(default_factory=lambda: Path("."))
    rank_id: int = 0
    rank_size: int = 1
    by_mpi: bool = False
    connect_timeout: float = 120.0
    exec_timeout: float = 1836.0
    job_folder: Path | None = None
    device_id: int = 0
    forbid_compile: bool = False
    workers: int = 1
    num_threads: int = 1
    copy_weights: bool = False
    compile_timeout: float = 300.0
    linker: str = ""
    op_compiler_cache_mode: str = "enable"
    op_compiler_cache_dir: Path | None = None
    soc_version: str = ""
    op_debug_level: int = 0
    op_debug_config: Path | None = None
    debug_dir: Path | None = None
    debug_folder: Path = Path("kernel_meta")
    op_select_implmode: str = "high_performance"
    optypelist_for_implmode: tuple[str, ...] = ()
    precision_mode: str = "must_keep_origin_dtype"
    trust_shared_cache: bool = False
    signing_key: str = field(default="", repr=False)
    warnings: tuple[str, ...] = ()

    @property
    def cache_folder(self) -> Path:
        """The folder whose size is limited, absolute; ``network_meta`` is in it.

        ``rank_<id>``, or in ``op_compiler_cache_dir`` the target's folder.
        """
        if self.op_compiler_cache_dir is None:
            return Path(os.path.abspath(self.cache_path)) / f"rank_{self.rank_id}"
        return Path(os.path.abspath(self.op_compiler_cache_dir)) / (self.soc_version or "host")

    @property
    def precision(self) -> tuple[str, ...]:
        """What decides how accurately a network is computed; equal for settings that mean the same."""
        types = sorted({*self.optypelist_for_implmode}) if self.op_select_implmode != IMPLEMENTATION_MODES[0] else []
        return (self.precision_mode, self.op_select_implmode, *types)

    @property
    def forces_float32(self) -> bool:
        """Whether other floating-point types are computed in float32."""
        return self.precision_mode == "force_fp32"

    @property
    def kernel_meta(self) -> Path:
        """Where operators are stored."""
        return self.cache_folder / "kernel_meta" if self.op_compiler_cache_dir is None else self.cache_folder

    @property
    def network_meta(self) -> Path:
        """Where network images are stored."""
        return self.cache_folder / "network_meta"

    @property
    def policy_file(self) -> Path:
        """``op_cache.ini``: at the root of ``op_compiler_cache_dir``, or in ``rank_<id>``."""
        folder = self.cache_folder if self.op_compiler_cache_dir is None else self.cache_folder.parent
        return folder / "op_cache.ini"

    @property
    def uses_cache(self) -> bool:
        """Whether anything is read from or written to the cache: not with ``disable``, and not in debugging."""
        return self.op_compiler_cache_mode != "disable" and self.op_debug_level == 0

    @property
    def forces(self) -> bool:
        """Whether what is stored is replaced without being used."""
        return self.uses_cache and self.op_compiler_cache_mode == "force"

    @property
    def compiler_memo(self) -> Path | None:
        """Where the digest of the compiler is remembered; None: it is read each time."""
        return self.network_meta / COMPILER_MEMO if self.uses_cache and not self.forces else None

    @staticmethod
    def from_environment(
        *,
        cache_path: str | os.PathLike[str] | None = None,
        forbid_compile: bool | None = None,
        workers: int | None = None,
        num_threads: int | None = None,
        copy_weights: bool | None = None,
        op_compiler_cache_mode: str | None = None,
        op_compiler_cache_dir: str | os.PathLike[str] | None = None,
        op_debug_level: int | None = None,
        op_debug_config: str | os.PathLike[str] | None = None,
        debug_dir: str | os.PathLike[str] | None = None,
        op_select_implmode: str | None = None,
        optypelist_for_implmode: str | Sequence[str] | None = None,
        precision_mode: str | None = None,
        mindspore: bool = False,
        atc: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> Config:
        """Read the settings.

        Args:
            cache_path: Overrides ``MS_COMPILER_CACHE_PATH``.
            forbid_compile: Overrides ``OPBUILD_FORBID_COMPILE``.
            workers: Overrides ``MS_BUILD_PROCESS_NUM``.
            num_threads: Overrides ``OPBUILD_NUM_THREADS``.
            copy_weights: Overrides ``OPBUILD_COPY_WEIGHTS``.
            op_compiler_cache_mode: ``enable``, ``force`` or ``disable``.
            op_compiler_cache_dir: Folder of ``<soc_version>`` folders; None for the ``rank_<id>`` layout.
            op_debug_level: 0 to 4; for a MindSpore program it overrides ``MS_COMPILER_OP_LEVEL``.
            op_debug_config: An existing file.
            debug_dir: An existing folder.
            op_select_implmode: ``high_performance`` or ``high_precision``.
            optypelist_for_implmode: Operator types, as a sequence or separated by commas.
            precision_mode: ``must_keep_origin_dtype`` or ``force_fp32``.
            mindspore: Whether a MindSpore program asks, which keeps what it builds in the working folder and for which
                ``MS_COMPILER_OP_LEVEL`` counts: 0 leaves no files behind (mode ``disable``), 1, 2 and 4 are those of
                ``op_debug_level``, 3, the default, is no debugging.
            atc: Whether ``opbuild atc`` asks, whose operators are where ATC keeps them.
            environ: Read instead of the process's environment, for tests.

        Raises:
            OptionError: If a value is not allowed; the message names the option, the value and what is allowed.
        """
        env = os.environ if environ is None else environ
        cores = available_cores()
        if workers is None:
            workers = _integer(env, "MS_BUILD_PROCESS_NUM", cores if cores < 24 else 24, 1, 24)
        elif workers < 1:
            raise OptionError(f"workers is {workers}", "give an integer of at least 1")
        if num_threads is None:
            num_threads = _integer(env, "OPBUILD_NUM_THREADS", cores, 1, 1024)
        elif not 1 <= num_threads <= 1024:
            raise OptionError(f"num_threads is {num_threads}", "give an integer from 1 to 1024")
        warnings: list[str] = []
        if op_debug_level is None and mindspore:
            level = _mindspore_level(env, warnings)
            op_debug_level = level if level != _MINDSPORE_LEVEL else 0
            if level == 0 and op_compiler_cache_mode is None:
                op_compiler_cache_mode = "disable"
        mode = _choice("op_compiler_cache_mode", op_compiler_cache_mode, CACHE_MODES)
        known_users = environ is None
        if atc and op_compiler_cache_dir is None and cache_path is None:
            place = atc_place(env, known_users=known_users)
            op_compiler_cache_dir = place.folder
        elif mindspore or op_compiler_cache_dir is not None or _named_cache(env, cache_path):
            place = Place(_cache_path(_named_cache(env, cache_path)))
        else:
            place = user_place(env, known_users=known_users)
        if place.warning and mode != "disable":
            warnings.append(place.warning)
        rank, size, device = started_rank(env)
        rank = _integer(env, "RANK_ID", rank, 0, 2**31 - 1)
        return Config(
            cache_path=place.folder,
            rank_id=rank,
            rank_size=_integer(env, "RANK_SIZE", size, 1, 2**31 - 1),
            by_mpi=size > 1,
            connect_timeout=_connect_timeout(env, rank, warnings),
            exec_timeout=float(_integer(env, "HCCL_EXEC_TIMEOUT", 1836, 0, 2**31 - 1)),
            job_folder=_job_folder(env.get("OPBUILD_JOB_DIR", "")),
            device_id=_integer(env, "DEVICE_ID", device, 0, 2**31 - 1),
            forbid_compile=_flag(env, "OPBUILD_FORBID_COMPILE") if forbid_compile is None else forbid_compile,
            workers=workers,
            num_threads=num_threads,
            copy_weights=_flag(env, "OPBUILD_COPY_WEIGHTS") if copy_weights is None else copy_weights,
            compile_timeout=float(_integer(env, "OPBUILD_COMPILE_TIMEOUT", 300, 1, 86400)),
            linker=env.get("OPBUILD_LINKER", ""),
            op_compiler_cache_mode=mode,
            op_compiler_cache_dir=_folder("op_compiler_cache_dir", op_compiler_cache_dir, must_exist=False),
            op_debug_level=_level(op_debug_level),
            op_debug_config=_file("op_debug_config", op_debug_config),
            debug_dir=_folder("debug_dir", debug_dir, must_exist=True),
            debug_folder=Path(env.get("ASCEND_WORK_PATH") or ".") / "kernel_meta",
            op_select_implmode=_choice("op_select_implmode", op_select_implmode, IMPLEMENTATION_MODES),
            optypelist_for_implmode=_operator_types(optypelist_for_implmode),
            precision_mode=_choice("precision_mode", precision_mode, PRECISION_MODES),
            trust_shared_cache=_flag(env, "OPBUILD_TRUST_SHARED_CACHE"),
            signing_key=env.get("OPBUILD_SIGNING_KEY", ""),
            warnings=tuple(warnings),
        )


def atc_cache() -> Path:
    """Return the folder in which ``opbuild atc`` keeps operators if nobody says where."""
    return atc_place(os.environ).folder


def quota_environment(environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return ``ASCEND_MAX_OP_CACHE_SIZE`` and ``ASCEND_REMAIN_CACHE_SIZE_RATIO`` as they stand, "" if not set."""
    env = os.environ if environ is None else environ
    return env.get("ASCEND_MAX_OP_CACHE_SIZE", "").strip(), env.get("ASCEND_REMAIN_CACHE_SIZE_RATIO", "").strip()


def available_cores() -> int:
    """Return the number of cores that this process may use, by its affinity mask and its container's limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = cpu_limit()
    return max(1, min(cores or 1, limit if limit is not None else cores or 1))


def _integer(env: Mapping[str, str], name: str, default: int, least: int, greatest: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= greatest:
        raise OptionError(f"{name} is {text!r}", f"it must be an integer from {least} to {greatest}")
    return value


def _choice(option: str, value: str | None, allowed: Sequence[str]) -> str:
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise OptionError(f"{option} is {value!r}", f"it must be {' or '.join(allowed)}")
    return value


def _level(value: int | None) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value not in DEBUG_LEVELS:
        raise OptionError(f"op_debug_level is {value!r}", "it must be an integer from 0 to 4")
    return value


def _mindspore_level(env: Mapping[str, str], warnings: list[str]) -> int:
    text = env.get("MS_COMPILER_OP_LEVEL", "").strip()
    if text in map(str, DEBUG_LEVELS):
        return int(text)
    if text:
        warnings.append(
            f"MS_COMPILER_OP_LEVEL is {text!r}; it must be an integer from 0 to 4, {_MINDSPORE_LEVEL} is used"
        )
    return _MINDSPORE_LEVEL


def _named_cache(env: Mapping[str, str], given: str | os.PathLike[str] | None) -> str | os.PathLike[str]:
    """Return the folder that the caller or the environment names; empty if neither does."""
    return env.get("MS_COMPILER_CACHE_PATH", "") if given is None else (given or ".")


def _cache_path(value: str | os.PathLike[str]) -> Path:
    return _path("cache_path", value or ".", "a folder, which is made if it is missing")


def _path(option: str, value: str | os.PathLike[str], allowed: str) -> Path:
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise OptionError(f"{option} is {value!r}", f"it must be {allowed}")
    return Path(text)


def _folder(option: str, value: str | os.PathLike[str] | None, *, must_exist: bool) -> Path | None:
    if value is None:
        return None
    allowed = "an existing folder" if must_exist else "a folder, which is made if it is missing"
    path = _path(option, value, allowed)
    if not os.path.isdir(path) and (must_exist or os.path.exists(path)):  # noqa: PTH110,PTH112  pathlib's may raise
        raise OptionError(f"{option} is {str(path)!r}", f"it must be {allowed}")
    return path


def _file(option: str, value: str | os.PathLike[str] | None) -> Path | None:
    if value is None:
        return None
    path = _path(option, value, "an existing file")
    if not os.path.isfile(path):  # noqa: PTH113  pathlib's may raise
        raise OptionError(f"{option} is {str(path)!r}", "it must be an existing file")
    return path


def _operator_types(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return operator types, each once, in the order given."""
    if value is None:
        return ()
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise OptionError(
                f"optypelist_for_implmode is {value!r}", "it must be names of operator types separated by commas"
            )
    return tuple(dict.fromkeys(names))


def _connect_timeout(env: Mapping[str, str], rank: int, warnings: list[str]) -> float:
    """Return ``HCCL_CONNECT_TIMEOUT``; what lies outside the range of HCCL is obeyed, and said by one rank."""
    seconds = _integer(env, "HCCL_CONNECT_TIMEOUT", 120, 1, 2**31 - 1)
    if not 120 <= seconds <= 7200 and rank == 0:
        warnings.append(f"HCCL_CONNECT_TIMEOUT is {seconds}, outside 120 to 7200; {seconds} s are used")
    return float(seconds)


def _job_folder(text: str) -> Path | None:
    """Return the folder as it stands: a job whose folder is gone is built without it."""
    return Path(os.path.abspath(text)) if text.strip() and "\0" not in text else None


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower()
    if text in ("", "0", "false", "no", "off"):
        return False
    if text in ("1", "true", "yes", "on"):
        return True
    raise OptionError(f"{name} is {env[name]!r}", "it must be 0 or 1")


def linker_environment() -> dict[str, str]:
    """Return the environment in which linkers run: this process's, but for the signing key."""
    return {name: value for name, value in os.environ.items() if name != "OPBUILD_SIGNING_KEY"}


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
