"""A machine of its own for exported units: a real systemd as process 1 of new namespaces, on the programs of this machine.

Its files are in memory and end with it. The network is that of this machine, so its services reach the servers of a test.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from deploy.local.artifacts import cache_dir

__all__ = ["CHECKOUT", "SystemdMachine"]

CHECKOUT: Final = "/opt/tidegate"
"""Where the README of the units wants the checkout."""
SYSTEMD: Final = Path("/lib/systemd/systemd")
CGROUPS: Final = Path("/sys/fs/cgroup")
BOOT_SECONDS: Final = 60.0
PACKAGES: Final = ("deploy", "gateway", "ingest", "lakehouse", "monitoring", "streaming")
ROOT: Final = Path(__file__).parents[2]
# In a control group of its own first, which is then the top one for all that systemd sees.
_ENTER: Final = """
for hierarchy in $HIERARCHIES; do echo $$ > "/sys/fs/cgroup/$hierarchy/$GROUP/cgroup.procs" || exit 1; done
exec unshare --fork --kill-child --pid --mount --uts --ipc --cgroup sh -c "$BOOT"
"""
# Process 1 starts here, in new namespaces. Programs and code are mounted read-only; all else is new and in memory.
_BOOT: Final = r"""
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$NEW_ROOT"
cd "$NEW_ROOT"
mkdir -p usr etc var/lib var/log var/cache/tidegate var/tmp run tmp dev proc sys root home old
mkdir -p opt/python opt/packages opt/tidegate/.venv/bin "opt/tidegate/.venv/$PACKAGES_IN_VENV"
for link in bin sbin lib lib32 lib64; do
    if [ -L "/$link" ]; then ln -s "usr/$link" "$link"; fi
done
only_read() { mount --bind "$1" "$2"; mount -o remount,bind,ro "$2"; }
only_read /usr usr
only_read "$PYTHON" opt/python
only_read "$SITE_PACKAGES" opt/packages
only_read "$CACHE" var/cache/tidegate
for package in $CODE; do mkdir "opt/tidegate/$package"; only_read "$REPOSITORY/$package" "opt/tidegate/$package"; done
ln -s /opt/python/bin/"$INTERPRETER" opt/tidegate/.venv/bin/python
printf 'home = /opt/python/bin\n' > opt/tidegate/.venv/pyvenv.cfg
printf '/opt/tidegate\n/opt/packages\n' > "opt/tidegate/.venv/$PACKAGES_IN_VENV/tidegate.pth"
printf '#!/opt/tidegate/.venv/bin/python\nfrom deploy.cli import main\nmain()\n' > opt/tidegate/.venv/bin/tidegate
chmod 755 opt/tidegate/.venv/bin/tidegate
chmod 1777 tmp var/tmp
chmod 700 root
cp -a /etc/. etc/
rm -rf etc/systemd etc/init.d etc/rc?.d
mkdir -p etc/systemd/system etc/sysusers.d
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' > etc/machine-id
# A Python with a shared library looks for it where it was built.
echo /opt/python/lib > etc/ld.so.conf.d/00-python.conf
ldconfig -r .
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do touch "dev/$device"; mount --bind "/dev/$device" "dev/$device"; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
for group in $HIERARCHIES; do
    mkdir "sys/fs/cgroup/$group"
    case "$group" in systemd) options=none,name=systemd;; *) options=$group;; esac
    mount -t cgroup -o "$options" cgroup "sys/fs/cgroup/$group"
done
pivot_root . old
cd /
# systemd gives credentials to a service by a mount that it makes elsewhere; what starts a container shares its mounts.
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test \
    /bin/sh -c 'umount -l /old; mount --make-rshared /; exec "$0" "$@"' \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=journal --show-status=no
"""


def obstacle() -> str:
    """Why no systemd can start here, as half a sentence; empty if one can."""
    if os.geteuid() != 0:
        return "only root can start a systemd of its own"
    programs = [name for name in ("unshare", "nsenter", "systemd-sysusers") if shutil.which(name) is None]
    if not SYSTEMD.exists() or programs:
        return f"{programs[0] if programs else SYSTEMD} is not on this machine"
    if not (CGROUPS / "systemd").is_dir() or not (CGROUPS / "memory").is_dir():
        return "this machine has no cgroups of version 1, which this test needs"
    return ""


class SystemdMachine:
    """A running systemd. `root` is its file system as this machine sees it; an absolute path there is `root / path[1:]`."""

    def __init__(self, folder: Path) -> None:
        self._name = f"tidegate-test-{os.getpid()}-{folder.name}"
        self._log = folder / "systemd.log"
        new_root = folder / "root"
        new_root.mkdir(parents=True)
        self._groups = [each.name for each in CGROUPS.iterdir() if (each / "cgroup.clone_children").exists()]
        libraries = Path(sysconfig.get_path("purelib"))
        environment = {
            "PATH": os.environ["PATH"],
            "NEW_ROOT": str(new_root),
            "PYTHON": sys.base_prefix,
            "INTERPRETER": f"python{sys.version_info.major}.{sys.version_info.minor}",
            "SITE_PACKAGES": str(libraries),
            "PACKAGES_IN_VENV": str(libraries.relative_to(sys.prefix)),
            "CACHE": str(cache_dir().parent),
            "REPOSITORY": str(ROOT),
            "CODE": " ".join(PACKAGES),
            "HIERARCHIES": " ".join(self._groups),
            "GROUP": self._name,
            "BOOT": _BOOT,
        }
        for group in self._groups:
            self._make_group(CGROUPS / group)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _ENTER], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _make_group(self, hierarchy: Path) -> None:
        group = hierarchy / self._name
        group.mkdir()
        if hierarchy.name == "cpuset":  # an empty one takes no process
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy / file).read_text())

    def await_boot(self, wait_until: Callable[..., object]) -> None:
        """Wait until systemd has started all that it starts by itself."""

        def is_up() -> bool:
            assert self._process.poll() is None, f"systemd ended:\n{self.log()}"
            return self._init() is not None and self.systemctl("is-system-running").strip() == "running"

        wait_until(is_up, seconds=BOOT_SECONDS, what="the start of systemd")

    def _init(self) -> int | None:
        """Process id of systemd here, once it is that."""
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children():
                if child.name() == "systemd":
                    return int(child.pid)
        return None

    @property
    def root(self) -> Path:
        """Its file system."""
        return Path(f"/proc/{self._init()}/root")

    def run(self, *command: str, stdin: str = "", check: bool = False) -> "subprocess.CompletedProcess[str]":
        """Run a command there as root."""
        inside = ["nsenter", "--target", str(self._init()), "--all", *command]
        done = subprocess.run(inside, input=stdin, capture_output=True, text=True, check=False, timeout=300)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done

    def systemctl(self, *words: str) -> str:
        """Standard output of systemctl."""
        return self.run("systemctl", "--no-pager", *words).stdout

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", unit, f"--property={name}", "--value").strip()

    def pid(self, unit: str) -> int:
        """Process id of a unit's main process there; 0 if none runs."""
        return int(self.show(unit, "MainPID"))

    def journal(self, unit: str) -> str:
        """What a unit and systemd wrote about it."""
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}").stdout

    def group(self, unit: str, hierarchy: str) -> Path:
        """The control group of a unit, as this machine sees it."""
        return CGROUPS / hierarchy / self._name / self.show(unit, "ControlGroup").lstrip("/")

    def log(self) -> str:
        """Output of systemd itself."""
        return self._log.read_text("utf-8", "replace")

    def stop(self) -> None:
        """End it and all of its processes, and remove its control groups."""
        if self._process.poll() is None:
            with suppress(psutil.Error):
                for child in psutil.Process(self._process.pid).children():
                    child.kill()  # The end of process 1 ends all others.
            self._process.wait(30)
        end = time.monotonic() + 10
        for group in self._groups:
            while not self._remove_groups(CGROUPS / group / self._name) and time.monotonic() < end:
                time.sleep(0.1)

    @staticmethod
    def _remove_groups(top: Path) -> bool:
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return not top.exists()


@pytest.fixture
def systemd_machine(tmp_path: Path, wait_until: Callable[..., object]) -> Iterator[SystemdMachine]:
    """See `SystemdMachine`."""
    if why := obstacle():
        pytest.skip(why)
    machine = SystemdMachine(tmp_path / "machine")
    try:
        machine.await_boot(wait_until)
        yield machine
    finally:
        machine.stop()
