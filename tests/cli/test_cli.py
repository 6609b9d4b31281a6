"""The command line as a person meets it: one clear line for bad input, exit 2, nothing lost."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import forked
from command import invoke, spreadout

QUICK = ["rounds=2", "eval.every=1", "clients.local_steps=1"]


def test_help_comes_fast_and_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['spreadout', '--help']\n"
        "from spreadout.cli import main as cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout
    assert time.monotonic() - started < 5  # about 0.3 s on an idle machine; importing torch alone is 2 s


def test_run_writes_the_folder_of_the_contract(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "run"
    assert invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "--out", str(out), "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    summary = json.loads((out / "summary.json").read_text())
    assert {**summary, "folder": str(out)} == printed
    assert summary.keys() >= {
        "name", "method", "dataset", "clients", "classes", "rounds", "metrics", "best", "bytes", "seconds",
        "peak_memory_bytes", "refused_updates", "privacy", "seed", "versions",
    }  # fmt: skip
    assert (summary["method"], summary["clients"], summary["classes"], summary["rounds"]) == (
        "fedaws",
        10,
        10,
        2,
    )
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["round"] for record in records] == [0, 1, 2]
    assert records[-1]["bytes_down"] == summary["bytes"]["down"] == 2 * 10 * (16576 * 4 + 8 + 64 * 4)
    assert records[-1].keys() >= {
        "P@1",
        "bytes_up",
        "seconds",
        "max_cosine",
        "effective_rank",
        "error_bound",
    }
    assert (out / "model" / "weights.safetensors").is_file()


def test_the_resolved_config_runs_again_to_the_same_result(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    first, second = tmp_path / "a", tmp_path / "b"
    invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "method.name=baseline-2", "--out", str(first))
    invoke(monkeypatch, "run", str(first / "config.toml"), "--out", str(second))
    assert (first / "config.toml").read_text() == (second / "config.toml").read_text()
    results = [json.loads((run / "summary.json").read_text())["metrics"] for run in (first, second)]
    assert results[0] == results[1]


def test_an_existing_folder_is_never_overwritten_without_force(
    tmp_path: Path, monkeypatch, capsys
) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "run"
    run = ["run", "digits-fedaws", *QUICK, "--out", str(out)]
    assert invoke(monkeypatch, *run) == 0
    before = (out / "summary.json").read_bytes()
    assert invoke(monkeypatch, *run) == 2
    assert capsys.readouterr().err.endswith(
        f"error: {out}: exists; choose another --out (out=), or --force (force=True) to replace it\n"
    )
    assert (out / "summary.json").read_bytes() == before
    assert invoke(monkeypatch, *run, "seed=1", "--force") == 0
    assert json.loads((out / "summary.json").read_text())["seed"] == 1


def test_force_never_deletes_what_is_no_run(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.tex").write_text("all of it")
    assert invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "--out", str(precious), "--force") == 2
    assert invoke(monkeypatch, "compare", "digits-demo", "--out", str(precious), "--force") == 2
    (precious / "config.toml").write_text("title = 'a web site'")
    assert invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "--out", str(precious), "--force") == 2
    assert (precious / "chapter.tex").read_text() == "all of it"
    assert capsys.readouterr().err.count("is not a run folder") == 3


BAD = [
    (["run", "none.toml"], "none.toml: no such file, and no preset of this name"),
    (["run", "broken.toml"], "broken.toml: not valid TOML"),
    (["run", "typo.toml"], "typo.toml: clients.local_step: unknown key; did you mean 'local_steps'?"),
    (["run", "digits-fedaws", "rouns=1"], "override rouns: unknown key; did you mean 'rounds'?"),
    (["run", "digits-fedaws", "method.name=fedawz"], "override method.name = 'fedawz': unknown; did you mean 'fedaws'?"),
    (["run", "digits-fedaws", "clients.lr=fast"], "clients.lr = 'fast': must be a number"),
    (["run", "typo.toml", "rounds=2.5"], "override rounds = 2.5: must be a whole number (and 1 more)"),
    (["run", "typo.toml", "rounds=2"], "typo.toml: clients.local_step: unknown key"),
    (["run", "digits-fedaws", "data.source={name='synthetic', classes=0}"], "data.source.classes = 0: must be at least"),
    (["run", "digits-fedaws", "clients.lr=0"], "override clients.lr = 0: must be above 0"),
    (["run", "digits-fedaws", "clients.batch=half"], "override clients.batch = 'half': must be a whole number or 'full'"),
    (["run", "digits-fedaws", "rounds=2.5"], "rounds = 2.5: must be a whole number"),
    (["run", "digits-fedaws", "run.memory_gb=true"], "run.memory_gb = True: must be a number, not true"),
    (["run", "digits-fedaws", "model.hidden=[8, true]"], "model.hidden = [8, True]: must be a number, not true"),
    (["run", "digits-fedaws", "method.spreadout_form=topk", "method.k=0"], "method.k = 0: must be at least 1"),
    (["run", "digits-fedaws", "method.spreadout_form=topk", "method.k=10"], "method.k = 10: must be below the number of classes, 10"),
    (["run", "digits-fedaws", "clients.per_round=11"], "clients.per_round = 11: there are only 10 clients"),
    (["run", "digits-fedaws", "data.source=digit"], "override data.source = 'digit': unknown; did you mean 'digits'?"),
    (["run", "digits-fedaws", "data.source=npz", "data.path=gone.npz"], "gone.npz: no such file"),
    (["run", "digits-fedaws", "data.source=npz", "data.path=broken.toml"], "broken.toml: not a readable .npz file"),
    (["run", "digits-fedaws", "eval.metrics=['accuracy']"], "'accuracy' is unknown; did you mean 'P@k'? Known: P@k, "),
    (["run", "digits-fedaws", "eval.split=validation", "data.validation_fraction=0"], "needs data.validation_fraction above 0"),
    (["run", "digits-fedaws", "server.tables.items.lr=1"], "server.tables.items: no such table; known: classes"),
    (["run", "digits-fedaws", "five"], "override 'five': write it as section.key=value"),
    (["run", "digits-fedaws", "--device", "tpu"], "--device tpu: unknown"),
    (["run"], "Missing argument 'config'; see --help"),
    (["resume", "nowhere"], "nowhere: not a run folder"),
    (["resume", "half"], "half/checkpoint: no complete checkpoint here"),
    (["run", "digits-fedaws", "name=my run"], "name = 'my run': may have letters"),
    (["run", "digits-fedaws", "eval.metrics=[]"], "eval.metrics = []: must have at least 1 entries"),
    (["run", "digits-fedaws", "data.test_fraction=0.99999"], "no example is left for the training part"),
    (["run", "digits-fedaws", "method.spreadout_form=topk", "method.k=3", "method.candidates=3"], "method.candidates = 3: must be above method.k = 3"),
    (["run", "digits-fedaws", "method.weighted=true", "data.partition=iid", "data.partition.clients=4"], "method.weighted = true: needs one class per client"),
    (["run", "digits-demo"], "digits-demo: is a suite; run it with `spreadout compare digits-demo`"),
    (["run", "digits-fedaws", "clients.local_steps=2", "clients.local_epochs=2"], "give local_steps or local_epochs, not both"),
    (["run", "digits-fedaws", "chosen=[]", "data.partition=iid"], "data.partition = \"iid\": set data.partition.clients"),
    (["run", "digits-fedaws", "data.source=movielens-1m", "data.source.windw=3"], "data.source.windw: unknown key; did you mean 'window'"),
    (["run", "digits-fedaws", "data.partition=by_user"], 'data.partition = "by_user": the source does not say whose each example is'),
    (["run", "digits-fedaws", "data.targets=all", "data.partition=iid", "data.partition.clients=2"], "method.name = 'fedaws': trains on one label an example"),
    (["run", "digits-fedaws", "clients.lr=inf"], "clients.lr = inf: must be finite"),
    (["run", "digits-fedaws", "eval.metrics=['P@11']"], "eval.metrics: P@11 needs more classes than the 10 there are"),
    (["run", "digits-fedaws", "method.name=centralized", "privacy.clip=1", "privacy.noise=1"], "pools the data; nothing is private"),
    (["compare", "digits-demo", "--out", "half", "--resume"], "half: is not the folder of a comparison; there is nothing to resume"),
    (["compare", "suite.toml"], "suite.toml: seeds = 3: must be a list"),
    (["compare", "suite.toml", "--seeds", "1"], "suite.toml: seeds = 3: must be a list"),
    (["compare", "empty.toml"], "empty.toml: variants = {}: must have at least 1 entries"),
    (["compare", "digits-demo", "--seeds", "x"], "--seeds x: write whole numbers"),
    (["compare", "digits-fedaws", "digits-fedaws"], "name = 'digits-fedaws': two of the configs have it"),
    (["report", "nowhere"], "nowhere: no such folder"),
    (["compare", "digits-demo", "rounds=3"], "rounds=3: change settings of all variants with --set rounds=3"),
    (["compare", "half", "digits-fedaws"], "half: is the folder of a run; spreadout report sets finished runs side by side"),
    (["run", "digits-fedaws", "clients.selection=nonempty", "clients.per_round=11"], "clients.per_round = 11: there are only 10 clients with examples to train on"),
    (
        ["run", "digits-fedaws", "method.name=fedalc", "method.table_noise=1"],
        "method.table_noise: needs table_clip",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("args", "line"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_is_one_line_and_exit_2(
    args: list[str], line: str, tmp_path: Path, monkeypatch, capsys
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    Path("broken.toml").write_text("[clients")
    Path("typo.toml").write_text("[clients]\nlocal_step = 1\n")
    Path("half").mkdir()
    Path("half/config.toml").write_text("")
    Path("half/checkpoint").mkdir()
    Path("half/checkpoint/state-00000003.safetensors").touch()
    Path("suite.toml").write_text("seeds = 3\n[variants.a]\n")
    Path("empty.toml").write_text("[variants]\n")
    assert invoke(monkeypatch, *args) == 2
    err = capsys.readouterr().err
    assert line.lower() in err.lower()
    assert err.count("\n") == 1
    assert not Path("runs").exists()  # nothing was begun


def test_no_gpu_where_one_was_asked_for(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (
        invoke(monkeypatch, "run", "digits-fedaws", "--device", "cuda", "--out", str(tmp_path / "r"))
        == 2
    )
    assert (
        capsys.readouterr().err
        == "error: --device cuda: no CUDA device is available here; use --device cpu\n"
    )
    assert not (tmp_path / "r").exists()


def test_bad_input_shows_no_traceback_in_a_real_process(tmp_path: Path) -> None:
    done = spreadout("run", "digits-fedaws", "rounds=none", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: override rounds = 'none': must be a whole number\n"


def test_presets_and_doctor_answer_machines(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    assert invoke(monkeypatch, "presets", "--json") == 0
    assert {"digits-fedaws", "digits-demo"} <= json.loads(capsys.readouterr().out).keys()
    assert invoke(monkeypatch, "doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["vmap + autograd"] == {"ok": True, "found": "works"}


def test_every_preset_loads() -> None:
    from spreadout.config.experiment import Experiment
    from spreadout.config.presets import presets
    from spreadout.config.values import read_toml
    from spreadout.runs.compare import Suite

    for name, about in presets().items():
        assert about
        if "variants" in read_toml(name):
            assert Suite.load([name], None).variants
        else:
            assert "/" in name or Experiment.load(name).name == name


def test_compare_runs_every_variant_and_can_go_on(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "cmp"
    call = ["compare", "digits-demo", "--out", str(out), "--seeds", "3,4", "--set", "rounds=2"]
    assert invoke(monkeypatch, *call) == 0
    table = json.loads((out / "comparison.json").read_text())
    assert [variant["name"] for variant in table["variants"]] == [
        "baseline-1",
        "baseline-2",
        "fedaws",
        "oracle",
    ]
    fedaws = table["variants"][2]
    values = [
        json.loads((out / "fedaws" / f"seed-{s}" / "summary.json").read_text())["metrics"]["P@1"]
        for s in (3, 4)
    ]
    assert fedaws["metrics"]["P@1"]["values"] == values
    assert fedaws["metrics"]["P@1"]["mean"] == pytest.approx(sum(values) / 2)
    assert fedaws["metrics"]["P@1"]["spread"] == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert fedaws["bytes_per_client_round"]["down"] == 16576 * 4 + 8 + 64 * 4
    assert table["variants"][3]["bytes_per_client_round"] == {"down": 0, "up": 0}

    assert invoke(monkeypatch, *call) == 2  # it is there already
    kept = (out / "oracle" / "seed-3" / "summary.json").stat().st_mtime_ns
    for left_over in ("summary.json", "projection.json"):  # as if cut short in its last run
        (out / "oracle" / "seed-4" / left_over).unlink()
    (out / "comparison.json").unlink()
    assert invoke(monkeypatch, *call, "--resume") == 0
    assert json.loads((out / "comparison.json").read_text())["variants"][0] == table["variants"][0]
    assert (out / "oracle" / "seed-3" / "summary.json").stat().st_mtime_ns == kept
    assert invoke(monkeypatch, *call, "--resume", "--set", "rounds=3") == 2
    assert "was run with another config" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("report", "nowhere"),
        ("audit", "digits-fedss"),
        ("confusion", "nowhere"),
        ("data", "describe", "digits"),
    ],
)
def test_no_file_but_a_page_gives_way_to_a_page(command, tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    mine = tmp_path / "mine.csv"
    mine.write_text("a,b\n1,2\n")
    assert invoke(monkeypatch, *command, "-o", str(mine)) == 2
    assert f"-o {mine}: exists and is no page; name another file" in capsys.readouterr().err
    assert mine.read_text() == "a,b\n1,2\n"


def test_the_report_is_self_contained_and_quotes_the_runs(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    out, page = tmp_path / "run", tmp_path / "page.html"
    invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "--out", str(out))
    assert invoke(monkeypatch, "report", str(out), "-o", str(page)) == 0
    text = page.read_text()
    summary = json.loads((out / "summary.json").read_text())
    assert f"<b>{summary['metrics']['P@1']:.1f}</b>" in text
    assert "http://www.w3.org/2000/svg" in text  # a name, not an address it fetches
    for outside in ("src=", "href=", "@import", "url("):
        assert outside not in text
    kinds = re.findall("<figure data-kind=([a-z]+)", text)
    assert kinds == [
        *["curves"] * 4,
        "traffic",
        "bars",
        "lines",
        "confusion",
        "clients",
        "clients",
        "map",
    ]


def test_force_replaces_nothing_before_the_new_comparison_can_run(
    tmp_path: Path, monkeypatch, capsys
) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "cmp"
    call = ["compare", "digits-demo", "--out", str(out), "--seeds", "0", "--set", "rounds=1"]
    assert invoke(monkeypatch, *call) == 0
    before = (out / "comparison.json").read_bytes()
    assert invoke(monkeypatch, *call, "--force", "--set", "clients.per_round=11") == 2
    assert (out / "comparison.json").read_bytes() == before


def test_the_hint_of_an_interrupted_comparison_can_be_typed_as_it_is(
    tmp_path: Path, monkeypatch, capsys
) -> None:  # type: ignore[no-untyped-def]
    from spreadout.cli import main as cli

    out = tmp_path / "my cmp"
    call = ["compare", "digits-demo", "--out", str(out), "--seeds", "5", "--set", "rounds=3"]
    monkeypatch.setattr(cli.Stop, "requested", lambda self: True)  # as if Ctrl-C came at once
    assert invoke(monkeypatch, *call) == 130
    monkeypatch.undo()
    hint = capsys.readouterr().err.partition("resume with: ")[2].strip()
    assert invoke(monkeypatch, *shlex.split(hint)[1:]) == 0
    assert json.loads((out / "comparison.json").read_text())["seeds"] == [5]


def test_giving_epochs_takes_back_a_presets_steps(tmp_path: Path) -> None:
    from spreadout.config.experiment import Experiment

    clients = Experiment.load("digits-fedaws", ["clients.local_epochs=2"]).clients
    assert (clients.local_steps, clients.local_epochs) == (None, 2)


def test_runs_without_a_common_metric_make_no_report(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    for name, metric in (("a", "P@1"), ("b", "R@3")):
        invoke(
            monkeypatch,
            "run",
            "digits-fedaws",
            *QUICK,
            f"eval.metrics=['{metric}']",
            "--out",
            str(tmp_path / name),
        )
    capsys.readouterr()
    assert (
        invoke(
            monkeypatch,
            "report",
            str(tmp_path / "a"),
            str(tmp_path / "b"),
            "-o",
            str(tmp_path / "p.html"),
        )
        == 2
    )
    assert "no metric in common" in capsys.readouterr().err
    same = tmp_path / "again"
    invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "--out", str(same))
    page = tmp_path / "two.html"
    assert invoke(monkeypatch, "report", str(tmp_path / "a"), str(same), "-o", str(page)) == 0
    written = page.read_text()
    assert "digits-fedaws (a)" in written  # one name, two folders
    assert "digits-fedaws (again)" in written
    (tmp_path / "a" / "summary.json").write_text("{}")
    assert invoke(monkeypatch, "report", str(tmp_path / "a")) == 2
    assert "summary.json: is damaged or was changed" in capsys.readouterr().err
    (tmp_path / "a" / "SHA256SUMS").unlink()  # as in a run of an earlier version
    assert invoke(monkeypatch, "report", str(tmp_path / "a")) == 2
    assert "summary.json: is damaged or was changed (name: " in capsys.readouterr().err


def test_a_table_that_is_no_longer_finite_ends_the_run_with_a_line(
    tmp_path: Path, monkeypatch, capsys
) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "run"
    assert (
        invoke(monkeypatch, "run", "digits-fedaws", *QUICK, "method.strength=1e38", "--out", str(out))
        == 2
    )
    assert (
        "diverged by round 1: the table of classes is not finite; lower the rates"
        in capsys.readouterr().err
    )


def test_clients_without_examples_are_told_of_and_their_refusals_shown(
    tmp_path: Path, monkeypatch, capsys
) -> None:  # type: ignore[no-untyped-def]
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "gaps.npz", x=x, y=np.arange(40) % 4, client=np.arange(40) % 4 * 2)
    data = ["data.source=npz", f"data.path={tmp_path / 'gaps.npz'}", "clients.selection=uniform"]
    data.append("data.partition=given")
    assert (
        invoke(monkeypatch, "run", "digits-fedaws", *QUICK, *data, "--out", str(tmp_path / "run")) == 0
    )
    printed = capsys.readouterr()
    assert "3 of 7 clients have no examples to train on" in printed.err
    assert "6 no examples (of 14 updates)" in printed.out
    np.savez(tmp_path / "ids.npz", x=x, y=np.arange(40) % 4 * 10**9)
    data = ["data.source=npz", f"data.path={tmp_path / 'ids.npz'}"]
    assert invoke(monkeypatch, "run", "digits-fedaws", *QUICK, *data, "--out", str(tmp_path / "r2")) == 0
    assert json.loads((tmp_path / "r2/summary.json").read_text())["classes"] == 4


def test_one_seed_has_no_deviation(tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "cmp"
    assert (
        invoke(
            monkeypatch, "compare", "digits-demo", "--out", str(out), "--seeds", "0", "--set", "rounds=1"
        )
        == 0
    )
    assert "±" not in capsys.readouterr().out
    assert (
        json.loads((out / "comparison.json").read_text())["variants"][0]["metrics"]["P@1"]["spread"]
        is None
    )


def test_a_model_too_large_for_the_machine_is_one_line(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    wide = ["data.source=synthetic", "data.source.classes=10000000", "data.source.examples=1000"]
    wide += ["data.source.features=100", "data.source.test_examples=10", "model.dim=1000000"]
    assert invoke(monkeypatch, "doctor", "--plan", "digits-fedaws", *wide) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("rehearsing")
    assert last.startswith("error: not enough memory")


def test_of_several_processes_the_first_one_talks(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("RANK", "1")
    assert invoke(monkeypatch, "run", "digits-fedaws", "method.k=0") == 2
    assert capsys.readouterr().err == ""


def test_a_table_pushed_too_hard_is_not_to_be_pushed_harder(tmp_path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    hard = ["method.spreadout_form=topk", "method.k=3", "method.strength=1e30"]
    out = str(tmp_path / "hard")
    assert invoke(monkeypatch, "run", "digits-fedaws", "rounds=2", *hard, "--out", out) == 0
    said = capsys.readouterr().err
    assert 'set method.spreadout_step = "safe" and method.k = 1' in said
    assert "raise method.strength" not in said


OLD_KEYS = [
    ("fedaws", "method.spreadout='topk'", "method.spreadout: is called method.spreadout_form now"),
    ("fedaws", "method.spreadout=0.5", "method.spreadout: is called method.spreadout_form now"),
    ("dual_encoder", "method.spreadout=1", "method.spreadout: is called method.row_spreadout now"),
    ("dual_encoder", "method.rows='all'", "method.rows: is called method.requests now"),
    ("fedss", "method.rows=58", "method.rows: is called method.sampled_rows now"),
    ("fedmlh", "method.tables=4", "method.tables: is called method.hash_tables now"),
    ("fedaws", "clients.asks_features='seen'", "clients.asks_features: is called clients.request_features now"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "old", "said"), OLD_KEYS, ids=[key for _, key, _ in OLD_KEYS])
def test_a_key_of_an_earlier_version_names_the_one_it_is_now(method: str, old: str, said: str) -> None:
    import spreadout as so

    with pytest.raises(so.UserError) as refused:
        so.Experiment.load("digits-fedaws", [f"method.name={method}", old])
    assert str(refused.value).endswith(said)


def test_a_suite_imports_its_modules_before_it_looks_for_its_base(tmp_path: Path) -> None:
    (tmp_path / "suite_parts.py").write_text(
        "import spreadout as so\n"
        "so.register_preset('of-a-suite', '# A preset\\nname = \"of-a-suite\"\\nrounds = 1\\n[data]\\nsource = \"digits\"\\n')\n"
    )
    for place in ('imports = ["suite_parts"]\n', ""):
        common = "" if place else '[common]\nimports = ["suite_parts"]\n'
        (tmp_path / "suite.toml").write_text(
            f'{place}base = "of-a-suite"\n{common}[variants.one]\nseed = 1\n'
        )
        out = str(tmp_path / "out")
        done = forked.spreadout("compare", "suite.toml", "--out", out, "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_a_script_may_name_itself_among_its_imports(tmp_path: Path) -> None:
    script = tmp_path / "own_script.py"
    script.write_text(
        "from typing import Literal\nimport spreadout as so\n"
        "@so.register_method\nclass Own(so.PositiveOnly):\n    name: Literal['own-script'] = 'own-script'\n"
        "e = so.Experiment.load('digits-fedaws', ['rounds=1', 'method.name=own-script', \"imports=['own_script']\"])\n"
        "print(e.imports, type(e.method) is Own)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout == "['own_script'] True\n", done.stderr
