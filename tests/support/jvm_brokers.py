"""ActiveMQ Artemis and HiveMQ CE as servers of their own: jars of `brokers.lock`, with libraries that pyspark brings too.

Both serve MQTT 3.1.1 and 5 on one port of loopback. Their settings are those that DEVICES.md names, so that nothing is lost.
"""

import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal
from xml.sax.saxutils import escape

from deploy.local import artifacts
from deploy.local.broker import EmbeddedBroker
from deploy.local.java import find_java
from deploy.local.kafka_java import java_command, property_lines, write_log_settings
from ingest.contract.errors import UnavailableError

__all__ = ["Artemis", "HiveMq", "fetch", "missing"]

JvmKind = Literal["artemis", "hivemq"]
LOCK_FILE: Final = Path(__file__).with_name("brokers.lock")
LOGIN_SOURCE: Final = Path(__file__).with_name("PasswordLogin.java")
READY_SECONDS: Final = 120.0
HEAP: Final = "256m"
_SHARED: Final[dict[JvmKind, tuple[str, ...]]] = {
    "artemis": (
        *(
            "netty-codec-socks",
            "netty-handler-proxy",
            "netty-transport-classes-epoll",
            "netty-transport-classes-kqueue",
        ),
        *(
            "commons-lang3",
            "commons-text",
            "jcl-over-slf4j",
            "log4j-api",
            "log4j-core",
            "log4j-slf4j2-impl",
            "slf4j-api",
        ),
        *("jackson-annotations", "jackson-core", "jackson-databind", "jackson-dataformat-yaml", "snakeyaml"),
    ),
    "hivemq": (
        *("commons-io", "commons-lang3", "guava", "failureaccess", "slf4j-api", "jul-to-slf4j", "rocksdbjni"),
        *("jackson-annotations", "jackson-core", "jackson-databind", "metrics-core", "metrics-jmx"),
        *("jakarta.activation-api", "jakarta.xml.bind-api", "jaxb-core", "jaxb-runtime", "istack-commons-runtime"),
    ),
}
"""Libraries of pyspark that each uses, in pyspark's versions."""


def _jars(kind: JvmKind) -> list[artifacts.Jar]:
    own = [jar for jar in artifacts.read_lock(LOCK_FILE) if jar.part in ("both", kind)]
    kafka = [jar for jar in artifacts.read_lock() if jar.name in ("caffeine", "HdrHistogram")]
    return own + (kafka if kind == "artemis" else [])


def fetch(kind: JvmKind, progress: Callable[[str], None]) -> None:
    """Have its jars in the cache.

    Raises:
        UnavailableError: a jar cannot be had.
    """
    artifacts.fetch_jars(_jars(kind), progress)


def missing(kind: JvmKind) -> str:
    """What is missing to start it, as half a sentence; empty if nothing is."""
    away = [jar.coordinate for jar in _jars(kind) if not (artifacts.cache_dir() / jar.file_name).is_file()]
    if away:
        return f"{away[0]} is not in {artifacts.cache_dir()}"
    if kind == "hivemq" and _javac() is None:
        return "HiveMQ lets a user in only by an extension, and no javac is here to compile it"
    return ""


def _classpath(kind: JvmKind) -> list[Path]:
    own = [artifacts.cache_dir() / jar.file_name for jar in _jars(kind)]
    return own + [artifacts.pyspark_jar(name) for name in _SHARED[kind]]


def _javac() -> str | None:
    return shutil.which("javac", path=str(find_java().home / "bin")) or shutil.which("javac")


class _JvmBroker(EmbeddedBroker):
    durable = True

    @property
    def warnings(self) -> list[str]:
        return []

    def prepare(self) -> None:
        """Write its files, some of which lie in folders."""
        for name in self._files():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        super().prepare()

    def wait_ready(self, process: "subprocess.Popen[bytes]", seconds: float = READY_SECONDS) -> None:
        """See `EmbeddedBroker.wait_ready`."""
        super().wait_ready(process, seconds)

    def _users_file(self) -> str:
        return property_lines(self._users)


class Artemis(_JvmBroker):
    """ActiveMQ Artemis; its user may do everything."""

    kind = "artemis"  # type: ignore[assignment]

    def prepare(self) -> None:
        """See `EmbeddedBroker.prepare`."""
        super().prepare()
        write_log_settings(self.folder / "log4j2.yaml", self.folder / "log")
        with (self.folder / "log4j2.yaml").open("a", encoding="utf-8") as settings:
            # A line for each packet; the settings end with their list of loggers.
            settings.write('    Logger: [{name: org.apache.activemq.audit, level: "off"}]\n')

    def command(self) -> list[str]:
        """See `EmbeddedBroker.command`."""
        java = java_command(find_java(), _classpath("artemis"), log_settings=self.folder / "log4j2.yaml")
        login = f"-Djava.security.auth.login.config={self.folder / 'etc' / 'login.config'}"
        main = "org.apache.activemq.artemis.core.server.embedded.Main"
        return [*java, f"-Xmx{HEAP}", login, main, str(self.folder)]

    def _files(self) -> dict[str, str]:
        module = "org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule"
        names = "org.apache.activemq.jaas.properties"
        login = f'PropertiesLogin {{ {module} required {names}.user="users" {names}.role="roles"; }};\n'
        return {
            "etc/broker.xml": self._configuration(),
            "etc/login.config": login,
            "etc/users": self._users_file(),
            "etc/roles": property_lines({"users": ",".join(self._users)}),
        }

    def _configuration(self) -> str:
        options = {
            "protocols": "MQTT",
            "useEpoll": "false",
            "securityDomain": "PropertiesLogin",
            "defaultMaximumInFlightPublishMessages": self._window,
            "maximumPacketSize": self._max_packet_bytes,
        }
        address = f"tcp://{self.host}:{self.port}?" + ";".join(f"{name}={value}" for name, value in options.items())
        rights = (
            *("createAddress", "deleteAddress", "createDurableQueue", "deleteDurableQueue", "createNonDurableQueue"),
            *("deleteNonDurableQueue", "send", "consume", "browse"),
        )
        core = {
            "name": "tests",
            "journal-type": "NIO",
            # Above this share of the disk it takes no message any more: the disk of a test is somebody else's.
            "max-disk-usage": "100",
            **{f"{what}-directory": f"{self.folder}/data/{what}" for what in ("journal", "bindings", "paging")},
            "large-messages-directory": f"{self.folder}/data/large",
        }
        lines = "".join(f"<{name}>{escape(value)}</{name}>\n" for name, value in core.items())
        permissions = "".join(f'<permission type="{right}" roles="users"/>\n' for right in rights)
        return (
            f'<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">\n{lines}'
            f'<acceptors><acceptor name="mqtt">{escape(address)}</acceptor></acceptors>\n'
            f'<security-settings><security-setting match="#">\n{permissions}</security-setting></security-settings>\n'
            '<address-settings><address-setting match="#">'
            "<address-full-policy>PAGE</address-full-policy></address-setting></address-settings>\n"
            "</core></configuration>\n"
        )


class HiveMq(_JvmBroker):
    """HiveMQ Community Edition, with an extension that compares passwords: without one it lets nobody in."""

    kind = "hivemq"  # type: ignore[assignment]

    _EXTENSION: Final = "extensions/password-login"
    _OPENED: Final = (
        *("--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.nio=ALL-UNNAMED"),
        *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
        *("--add-opens", "jdk.management/com.sun.management.internal=ALL-UNNAMED"),
        *("--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    )

    def prepare(self) -> None:
        """See `EmbeddedBroker.prepare`."""
        super().prepare()
        _build_login(self.folder / self._EXTENSION / "password-login.jar", _classpath("hivemq"))

    def command(self) -> list[str]:
        """See `EmbeddedBroker.command`."""
        java = java_command(find_java(), _classpath("hivemq"), log_settings=None)
        return [*java, f"-Xmx{HEAP}", *self._OPENED, f"-Dhivemq.home={self.folder}", "com.hivemq.HiveMQServer"]

    def _files(self) -> dict[str, str]:
        extension = (
            "<hivemq-extension><id>password-login</id><name>Password login</name><version>1</version>"
            "<priority>1000</priority><author>tests</author></hivemq-extension>\n"
        )
        return {
            "conf/config.xml": self._configuration(),
            f"{self._EXTENSION}/hivemq-extension.xml": extension,
            f"{self._EXTENSION}/users.properties": self._users_file(),
        }

    def _configuration(self) -> str:
        return (
            '<?xml version="1.0"?>\n<hivemq>\n'
            f"<listeners><tcp-listener><port>{self.port}</port><bind-address>{self.host}</bind-address></tcp-listener>"
            "</listeners>\n<mqtt>\n"
            f"<queued-messages><max-queue-size>{self._max_queued_messages}</max-queue-size><strategy>discard</strategy>"
            "</queued-messages>\n"
            f"<packets><max-packet-size>{self._max_packet_bytes}</max-packet-size></packets>\n</mqtt>\n"
            # It would send figures to its maker.
            "<anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>\n</hivemq>\n"
        )


def _build_login(jar: Path, classpath: Sequence[Path]) -> None:
    """Compile the extension and pack it.

    Raises:
        UnavailableError: there is no javac, or it fails.
    """
    if jar.exists():
        return
    javac, classes = _javac(), jar.parent / "classes"
    if javac is None:
        message = missing("hivemq")
        raise UnavailableError(message)
    words = [javac, "-d", str(classes), "-cp", ":".join(map(str, classpath)), str(LOGIN_SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        message = f"javac failed: {done.stderr[-1000:]}"
        raise UnavailableError(message)
    with zipfile.ZipFile(jar, "w") as packed:
        for file in classes.rglob("*.class"):
            packed.write(file, file.relative_to(classes))
        packed.writestr("META-INF/services/com.hivemq.extension.sdk.api.ExtensionMain", "PasswordLogin\n")
    shutil.rmtree(classes)
