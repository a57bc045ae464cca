"""A sweep through slurm/ goes wrong in every way: ranks are lost, jobs are requeued and preempted, nodes are lost, all at random
instants. Submitted again and again as its page says, it ends with all units done or named as broken, with the results of undisturbed
studies, and leaves nothing. Prints a row of a table for each kind of fault.

usage: sweep.py HEADSPAN MPIEXEC UNITS FAULTS [unittest's arguments]. Exit code 77 if there is no Slurm.

A sixth of the units are studied in allocations of two groups under mpirun, the others as an array under srun.
"""
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "app"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slurm"))
from cluster import ROOT, main
from compare import datasets, differences
from program import GOLDEN
from slurm_faults import FaultySlurm
from test_interrupts import check_files
from test_sweep import SITE, Submission

MODELS = ("early", "middle", "last_one")
BROKEN = ("truncated", "not_a_number", "absent")
TOKENS = 80_000
JOB = f"""
[model]
manifest = rows.tsv
dtype = float64
[tokens]
path = ids.bin
sequence_length = 60
limit = {TOKENS}
[predict]
references = 2
[run]
batch_tokens = 300
save_minutes = 0.02
[output]
directory = out
"""

CRASHED_AT_START = "139:0"  # Open MPI's own, once in some hundred starts over two nodes (slurm/README.md)
NOT_LAUNCHED = "[Ll]aunch(ed)? .*(failed|aborted)|launch failed"  # Slurm's, where a slurmd ends at that instant
ROUNDS = 30  # submissions at most
UNITS, FAULTS = int(sys.argv[3]), int(sys.argv[4])


def in_turn(faults, chance):
    """Returns so many names of faults in a random order, each as often as the others."""
    names = list(FaultySlurm.FAULTS)
    return [name for _ in range(-(-faults // len(names))) for name in chance.sample(names, len(names))][:faults]


def write_model(path, keys=None):
    """Makes a checkpoint whose first layer projects to other keys: random ones if none are given."""
    shutil.copytree(GOLDEN / "olmo2_mha", path)
    weights = path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    begin, end = json.loads(content[8:header])["model.layers.0.self_attn.k_proj.weight"]["data_offsets"]
    values = np.random.default_rng(len(path.name)).standard_normal((end - begin) // 4) if keys is None else keys
    content[header + begin:header + end] = np.resize(values, (end - begin) // 4).astype("<f4").tobytes()
    weights.write_bytes(content)


class Sweep(FaultySlurm):
    mpiexec = ""

    @classmethod
    def setUpClass(cls):
        cls.start_faulty_cluster(180 + 10 * UNITS + 60 * FAULTS)
        cls.prepare()
        cls.table = {name: [0, 0, 0.0] for name in cls.FAULTS}  # instants, violations, slowest end
        cls.violations, cls.met, cls.not_started = [], set(), 0

    @classmethod
    def prepare(cls):
        np.random.default_rng(6).integers(0, 64, TOKENS).astype("<u2").tofile(cls.folder / "ids.bin")
        models = cls.folder / "models"
        for name in (*MODELS, "truncated"):
            write_model(models / name)
        write_model(models / "not_a_number", np.nan)
        os.truncate(models / "truncated" / "model.safetensors", 4000)
        names = [f"unit{number:03}" for number in range(UNITS - len(BROKEN))]
        cls.units = {name: MODELS[number % len(MODELS)] for number, name in enumerate(names)}
        rows = [(name, models / model) for name, model in cls.units.items()]
        for number, name in enumerate(BROKEN):
            row = UNITS // 2 + number * (UNITS // 7)
            rows.insert(row, (name, models / name))
            cls.spared.add(str(row))
        header = "name\tstep\ttokens\tpath\trepository\n"
        cls.write("rows.tsv", header + "".join(f"{name}\t0\t0\t{path}\tmodel\n" for name, path in rows))
        cls.write("models.tsv", header + "".join(f"{name}\t0\t0\t{models / name}\tmodel\n" for name in MODELS))
        cls.write("job.ini", JOB)
        report = f'#!/bin/sh\nPYTHONPATH={ROOT}/analysis exec {sys.executable} -B -m headspan_report "$@"\n'
        cls.write("headspan-report", report).chmod(0o755)
        example = (ROOT / "slurm" / "site.env.example").read_text()
        for mode, launcher, nodes, ranks, at_a_time in (("array", "srun --mpi=pmix --wait=5", 2, 1, 3),
                                                        ("groups", "mpirun --bind-to none", 1, 2, 2)):
            cls.write(f"{mode}.env", example + SITE.format(program=cls.program, launcher=launcher, nodes=nodes, ranks=ranks,
                                                           at_a_time=at_a_time))

    @classmethod
    def write(cls, name, text):
        (cls.folder / name).write_text(text)
        return cls.folder / name

    @classmethod
    def submit(cls, mode, *keys):
        return Submission(cls.run_here(ROOT / "slurm" / "submit.sh", "job.ini", "--site", f"{mode}.env", "--mode", mode, *keys))

    # --- what happens ---

    def go_on(self, mode, faults, *keys):
        """Submits until only broken units are left, and brings about the faults, spread over the sweep."""
        done_before, expected = self.done(), len(keys[-1].split(",")) if keys else len(self.units)
        due = [done_before + number * (expected - done_before) // (len(faults) + 1) for number in range(len(faults))]
        for _ in range(ROUNDS):
            sweep = self.submit(mode, *keys)
            if not sweep.study:
                return
            while self.queued(sweep.study):
                if faults and self.done() >= due[-len(faults)]:
                    self.bring_about(faults)
                time.sleep(0.2)
                self.assertLess(time.monotonic(), self.deadline, self.run_here("squeue").stdout)
            self.run_here("scancel", sweep.report)  # that of the last submission will do
            self.check_ends(sweep)
            check_files(self.folder / "out")
            if self.done() == expected:
                return
        self.violations.append(f"{mode}: after {ROUNDS} submissions {self.done()} of {expected} units are done")

    def bring_about(self, faults):
        """Brings the first of the faults about. Takes it from the list, unless the jobs that it met were over before."""
        found, what = self.suffer(faults[0]), faults[0]
        if found is None:
            return
        outcomes, seconds = found
        _, expected = self.FAULTS[what]
        print(f"{what}: {outcomes}, {seconds:.1f} s", file=sys.stderr, flush=True)
        violations = [f"{what}: {task} is {outcome or 'not over'}\n{self.log(task)}" for task, outcome in outcomes.items()
                      if outcome not in expected | {"COMPLETED"} and not self.may_fail(task)]
        violations += [f"{what}: {task} is {outcome}, processes {self.processes_of_job(task)} go on"
                       for task, outcome in outcomes.items() if outcome not in ("", "REQUEUED", "GOES ON") and self.processes_of_job(task)]
        self.met.update(outcomes)
        self.violations += violations
        if violations or expected & set(outcomes.values()):
            faults.pop(0)
            row = self.table[what]
            row[:] = row[0] + 1, row[1] + len(violations), max(row[2], seconds)

    def log(self, task):
        """Returns what a job or task has said since it began or was started again."""
        path = self.folder / "out" / "log" / f"{task}.log"
        return re.split(r"^\S+ study: job ", path.read_text(), flags=re.MULTILINE)[-1] if path.exists() else ""

    def may_fail(self, task):
        """Whether a task failed because its unit is broken, which its log says, or before its ranks began."""
        code, told = self.job(task)["ExitCode"], self.log(task)
        if code == "2:0":
            return re.search(rf"^headspan: \S+/models/({'|'.join(BROKEN)})\b", told, re.MULTILINE)
        not_started = " headspan study units=" not in told and (code == CRASHED_AT_START or re.search(NOT_LAUNCHED, told))
        self.not_started += bool(not_started)
        return not_started

    def check_ends(self, sweep):
        """A job that met no fault is done, or is of a broken unit, which its log names."""
        for told in self.run_here("scontrol", "--oneliner", "show", "job", sweep.study).stdout.splitlines():
            job = dict(re.findall(r"(\w+)=(\S*)", told))
            task = f"{sweep.study}_{job['ArrayTaskId']}" if "ArrayTaskId" in job else sweep.study
            if task in self.met:
                continue
            if job["Restarts"] != "0" or (job["JobState"] != "COMPLETED" and not self.may_fail(task)):
                self.violations.append(f"{task}, which met no fault, is {job['JobState']} {job['ExitCode']}, {job['Restarts']} "
                                       f"restarts\n{self.log(task)}")

    def test_all_units_are_done_or_named_as_broken(self):
        names = list(self.units)[:max(4, UNITS // 6)]
        self.go_on("groups", in_turn(FAULTS // 4, self.chance), "--", "--model.select", ",".join(names))
        self.go_on("array", in_turn(FAULTS - FAULTS // 4, self.chance))
        last = self.submit("array")
        self.wait_for_jobs(last.study, last.report)
        self.check_ends(last)
        sound = list(self.violations)
        self.check_last(last)
        self.check_results()
        self.check_what_is_left()
        self.print_table(len(self.violations) - len(sound))
        self.assertEqual(self.violations, [], "\n".join(self.violations))
        self.assertGreaterEqual(sum(row[0] for row in self.table.values()), FAULTS // 4)  # the sweep may be over before

    # --- what came of it ---

    def expect(self, found, wanted, what):
        if found != wanted:
            self.violations.append(f"{what}: {found}, not {wanted}")

    def check_last(self, last):
        """The last submission is of the broken units alone, and the aggregation names them."""
        log = (self.folder / "out" / "log" / f"{last.report}.report.log").read_text()
        self.expect((int(last.open), int(last.units)), (len(BROKEN), UNITS), "submitted at last")
        self.expect(sorted(set(re.findall(r"name = (\S+): has no result", log))), sorted(BROKEN), "named by the aggregation")
        self.expect(re.findall(r"status=done checkpoints=(\d+)", log), [str(len(self.units))] * 2, "aggregated")

    def check_results(self):
        self.run_here(self.mpiexec, "-n", 2, self.program, "study", "job.ini", "--model.manifest", "models.tsv",
                      "--output.directory", "undisturbed")
        expected = {model: datasets(self.folder / "undisturbed" / "model" / f"{model}.h5") for model in MODELS}
        for name, model in self.units.items():
            try:
                found = differences(datasets(self.folder / "out" / "model" / f"{name}.h5"), expected[model])
            except OSError as error:
                found = {str(error): 1}
            self.expect({variable: d for variable, d in found.items() if d != 0}, {}, f"{name} differs")

    def check_what_is_left(self):
        self.expect({path.name for path in (self.folder / "out" / "model").iterdir()},
                    {f"{name}.h5{suffix}" for name in self.units for suffix in ("", ".done")}, "files beside the results")
        self.expect([process for process in self.processes() if "SLURM_JOB_ID=" in environment(process)], [], "processes that go on")
        for node in ("node1", "node2"):
            memory = Path("/proc", str(self.daemon(node)), "root", "dev", "shm")
            self.expect([path.name for path in memory.iterdir()], [], f"shared memory of {node}")
            left = [path.name for path in (self.cluster / "tmp" / node).iterdir()]  # spmix_appdir_*: slurmstepd's, not the ranks'
            self.expect([name for name in left if not name.startswith("spmix_appdir_")], [], f"temporary files of PMIx on {node}")
        left = [str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*")]
        # Of a step that ends while MPI starts, before PMIx knows of them, Open MPI leaves its folder and its map of the node.
        of_start = re.compile(r"ompi\.\w+\.\d+(/jf\.\d+(/hwloc\.sm)?)?")
        self.expect([name for name in left if not of_start.fullmatch(name)], [], "temporary files")

    def print_table(self, at_the_end):
        print("| fault | command | instants | violations | slowest end |\n| --- | --- | --- | --- | --- |")
        for what, (instants, violations, seconds) in self.table.items():
            print(f"| {what} | sweep of {UNITS} units | {instants} | {violations} | {seconds:.1f} s |")
        print(f"| all of these | results, files and processes at the end | {UNITS} | {at_the_end} | |")
        print(f"{self.not_started} tasks failed before their ranks began", flush=True)


def environment(process):
    try:
        return Path(f"/proc/{process}/environ").read_text(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    if shutil.which("slurmctld", path=os.environ["PATH"] + ":/usr/sbin") is None:
        print("no Slurm here; bash jobs/packages.sh test installs it")
        sys.exit(77)
    Sweep.program, Sweep.mpiexec = os.path.realpath(sys.argv[1]), sys.argv[2]
    main(arguments=4)
