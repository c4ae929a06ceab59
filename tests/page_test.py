#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The Plimsoll Authors
"""The HTML page of `plan`, `bill` and `timeline`: what is in the file, and, with --browser, what Chromium makes of it.

usage: page_test.py [--browser] PROGRAM [--shots FOLDER]

--browser needs the playwright package and a Chromium (PLIMSOLL_CHROMIUM, or one on the PATH); without them the test is
skipped (exit 77). --shots keeps screenshots: light, dark, narrow, and the print.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
PROGRAM = ""
SHOTS = None
ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "04_llama3_70b_64xh100.plan"
HOSTILE = """\
cluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }
train t { model = llama3_8b  cluster = pod  seq = 4Ki  batch = 64
  item "</script><script>document.title='owned'</script> {{data}} <!-- & <b>" { bytes = 1 GiB  category = buffers  lifetime = always } }
layout l { tp = 2  mbs = 1 }
"""
SIXTEEN = """\
cluster pod { gpu = h100_sxm  nodes = 128  gpus_per_node = 8 }
train t { model = llama3_405b  cluster = pod  seq = 8Ki  batch = 1024 }
layout l { tp = 8  pp = 16  zero = 1  mbs = 1 }
"""
TOO_LARGE = """\
cluster pod { gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }
train t { model = llama3_70b  cluster = pod  seq = 8Ki  batch = 64 }
"""
SMALL = """\
cluster pod {{ gpu = h100_sxm  nodes = 1  gpus_per_node = 8 }}
train t {{ model = {model}  cluster = pod  seq = {seq}  batch = 64  attention = {attention} }}
layout l {{ tp = 2  mbs = {mbs}  zero = {zero}  recompute = {recompute} }}
"""
OWN = {"model": "llama3_8b", "seq": "4Ki", "attention": "flash", "zero": 1, "recompute": "none", "mbs": 1}


def run(*arguments, text=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=text.encode() if text else None, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def answer(*arguments, text=None):
    return json.loads(run(*arguments, "--json", text=text)[1])


def page(*arguments, text=None):
    code, out, err = run(*arguments, "--html", "-", text=text)
    assert out.startswith("<!doctype html>"), (code, out[:200], err)
    return out


def data(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S).group(1))


def human(n):
    """Bytes as the program writes them."""
    if n < 1024:
        return f"{n} B"
    for unit, scale in (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40)):
        rounded = lambda times: (n * times + scale // 2) // scale
        if rounded(1) >= 1024 and unit != "TiB":
            continue
        if rounded(1) >= 1000:
            return f"{rounded(1):,} {unit}" if unit == "TiB" else f"{rounded(1)} {unit}"
        if rounded(100) < 10000:
            return f"{rounded(100) // 100}.{rounded(100) % 100:02} {unit}"
        return f"{rounded(10) // 10}.{rounded(10) % 10} {unit}"


class File(unittest.TestCase):
    def test_numbers_are_those_of_the_json(self):
        bill = answer("bill", EXAMPLE, "--layout", "hand")
        found = data(page("bill", EXAMPLE, "--layout", "hand"))
        self.assertEqual(found["bill"]["peak"], bill["peak_bytes"])
        self.assertEqual(found["bill"]["hbm"], bill["hbm_bytes"])
        names = [name for name, _ in found["categories"]]
        strings = found["strings"]
        for mine, theirs in zip(found["bill"]["stages"], bill["stages"], strict=True):
            self.assertEqual({name: n for name, n in zip(names, mine["categories"])}, theirs["categories"])
            self.assertEqual([(strings[i[0]], names[i[1]], i[2], strings[i[3]]) for i in mine["items"]],
                             [(i["name"], i["category"], i["bytes"], i["formula"]) for i in theirs["items"]])
            for key, name in (("live", "live_bytes"), ("allocated", "allocated_bytes"), ("reserved", "reserved_bytes"), ("peak", "peak_bytes"), ("hbm", "hbm_bytes")):
                self.assertEqual(mine[key], theirs[name])

    def test_the_timeline_is_that_of_the_json(self):
        theirs = answer("timeline", EXAMPLE, "--layout", "hand")
        found = data(page("timeline", EXAMPLE, "--layout", "hand"))["timeline"]
        self.assertEqual(found["peak"]["bytes"], theirs["peak_bytes"])
        for mine, columns in ((found["step"], theirs["steady_step"]["columns"]), (found["around"], theirs["around_peak"])):
            self.assertEqual([c[5] for c in mine], [c["bytes"] for c in columns])
            live = {}
            for column in mine:  # what is live in a column is said as changes, and adds up
                live.update(zip(column[6][::2], column[6][1::2]))
                self.assertEqual(sum(live.values()), column[5])
        self.assertEqual(found["step"][found["peak"]["step"]][5], theirs["peak_bytes"])

    def test_the_plan_is_that_of_the_json(self):
        theirs = answer("plan", EXAMPLE, "--top", 4)
        mine = data(page("plan", EXAMPLE, "--top", 4))["plan"]
        for one, other in zip([mine["best"], *mine["alternatives"]], [theirs["best"], *theirs["alternatives"]], strict=True):
            self.assertEqual({key: one[key] for key in other}, other)

    def test_the_workshop_is_what_bill_says(self):
        html = page("bill", "-", text=SMALL.format(**OWN))
        shop = data(html)["workshop"]
        self.assertEqual(shop["models"][0][0], OWN["model"])

        def at(**change):
            job = {**OWN, **change}
            index = 0
            for size, where in ((len(shop["models"]), [m[0] for m in shop["models"]].index(job["model"])), (len(shop["attentions"]), shop["attentions"].index(job["attention"])),
                                (len(shop["recomputes"]), shop["recomputes"].index(job["recompute"])), (4, job["zero"]), (len(shop["batches"]), shop["batches"].index(job["mbs"])),
                                (len(shop["seqs"]), shop["seqs"].index(int(job["seq"][:-2]) * 1024))):
                index = index * size + where
            point = shop["points"][index]
            mine = [shop["values"][i] for i in point[2:]]
            stage = answer("bill", "-", text=SMALL.format(**job))["stages"][point[0]]
            theirs = list(stage["categories"].values())
            if change:  # elsewhere than at the layout itself segments are the factor's, not replayed
                last = list(stage["categories"]).index("fragmentation")
                self.assertLess(abs(mine[last] - theirs[last]), 0.1 * sum(theirs), job)
                mine[last] = theirs[last]
            self.assertEqual(mine, theirs[:len(mine)], job)
            self.assertEqual(sum(theirs[len(mine):]), 0)

        at()
        for change in ({"zero": 0}, {"zero": 3}, {"seq": "32Ki"}, {"mbs": 4}, {"mbs": 2, "seq": "16Ki", "recompute": "selective"}, {"attention": "unfused"}, {"recompute": "full"}, {"recompute": "selective"},
                       {"model": shop["models"][1][0], "zero": 3, "recompute": "full"}, {"attention": "unfused", "recompute": "selective", "seq": "1Ki", "zero": 2}):
            at(**change)

    def test_one_file_without_network(self):
        html = page("plan", EXAMPLE)
        self.assertNotRegex(html, r'(?:src|href)="(?!#|data:)')
        self.assertNotIn("@import", html)
        self.assertNotRegex(html.replace("http://www.w3.org/2000/svg", ""), r"https?://")

    def test_size(self):
        for command in ("bill", "timeline"):
            html = page(command, "-", text=SIXTEEN)
            self.assertEqual(len(data(html)["bill"]["stages"]), 16)
            self.assertLess(len(html.encode()), 500_000)

    def test_names_cannot_end_the_script(self):
        html = page("bill", "-", text=HOSTILE)
        self.assertEqual(html.count("</script>"), 2)
        self.assertIn("</script><script>document.title='owned'</script> {{data}} <!-- & <b>", data(html)["strings"])

    def test_the_same_file_gives_the_same_page(self):
        self.assertEqual(page("bill", "-", text=SIXTEEN), page("bill", "-", text=SIXTEEN))

    def test_text_without_scripts(self):
        html = page("bill", EXAMPLE, "--layout", "hand")
        self.assertIn("<noscript>", html)
        self.assertIn(run("bill", EXAMPLE, "--layout", "hand")[1].splitlines()[3], html)

    def test_written_whole_or_not_at_all(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "answer.html")
            code, out, err = run("bill", EXAMPLE, "--layout", "hand", "--html", target)
            self.assertEqual((code, err), (0, f"plimsoll: the page is in '{target}'\n"))
            self.assertTrue(out.startswith("fits:"))  # the answer is printed besides
            self.assertTrue(target.read_text().rstrip().endswith("</html>"))
            self.assertEqual(os.listdir(folder), ["answer.html"])
            code, out, err = run("bill", EXAMPLE, "--layout", "hand", "--html", pathlib.Path(folder, "no", "answer.html"))
            self.assertEqual((code, out), (1, ""))
            self.assertIn("No such file or directory", err)
            copy = pathlib.Path(folder, "job.plan")
            copy.write_text(SIXTEEN)
            code, _, err = run("bill", copy, "--html", copy)
            self.assertEqual((code, copy.read_text()), (1, SIXTEEN))
            self.assertIn("would overwrite", err)

    def test_where_it_cannot_be_written(self):
        def refused(*arguments, **how):
            done = subprocess.run([PROGRAM, "bill", EXAMPLE, "--layout", "hand", *map(str, arguments)], capture_output=True, text=True, **how)
            self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
            self.assertRegex(done.stderr, r"\Aplimsoll: .*\nhelp: .+\n\Z")
            return done.stderr

        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder)
            for target in (there / "none" / "a.html", there, "/dev/full", "/proc/a.html", there / ("x" * 300), "a.html/b"):
                self.assertIn("cannot write", refused("--html", target))
            for forgotten in (["--html", ""], ["--html="], ["--html", "--json"]):
                self.assertIn("--html", refused(*forgotten, cwd=folder))
            # A limit of the shell on files, or a full disk, leaves nothing half-written.
            import resource
            said = refused("--html", there / "a.html", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)))
            self.assertIn("File too large", said)
            self.assertEqual(list(there.iterdir()), [])
            # The answer's own file is not thrown away for the page.
            with open(there / "answer.txt", "w") as out:
                done = subprocess.run([PROGRAM, "bill", EXAMPLE, "--layout", "hand", "--html", there / "answer.txt"], stdout=out, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("where the answer goes", done.stderr)
            # Over a file that is there, and through a link, which stays.
            (there / "old.html").write_text("x" * 10**6)
            (there / "link.html").symlink_to("old.html")
            self.assertEqual(run("bill", EXAMPLE, "--layout", "hand", "--html", there / "link.html")[0], 0)
            self.assertTrue((there / "link.html").is_symlink())
            self.assertTrue((there / "old.html").read_text().endswith("</html>\n"))

    def test_combinations(self):
        self.assertEqual(run("bill", EXAMPLE, "--html", "-", "--json")[0], 1)
        self.assertEqual(run("bill", EXAMPLE, "--html", "-", "--against", "textbook")[0], 1)
        self.assertEqual(run("plan", EXAMPLE, "--html", "-", "--on", "h200")[0], 1)
        code, out, _ = run("plan", "-", "--html", "-", text=TOO_LARGE)
        self.assertEqual(code, 2)
        self.assertIn("<!doctype html>", out)
        self.assertIn("plimsoll.page/1", page("plan", ROOT / "examples" / "05_serving_32k.plan", "--job", "one_h200"))


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        from playwright.sync_api import sync_playwright
        cls.playwright = sync_playwright().start()
        cls.chromium = cls.playwright.chromium.launch(executable_path=os.environ.get("PLIMSOLL_CHROMIUM") or shutil.which("chromium"), args=["--no-sandbox"])
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.chromium.close()
        cls.playwright.stop()
        cls.folder.cleanup()

    def show(self, html, width=1280, scheme="light", scripts=True):
        file = pathlib.Path(self.folder.name, "page.html")
        file.write_text(html)
        context = self.chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts)
        self.addCleanup(context.close)
        view = context.new_page()
        self.said = []
        view.on("console", lambda message: self.said.append(message.text))
        view.on("pageerror", lambda error: self.said.append(str(error)))
        view.on("request", lambda request: request.url.startswith(("file:", "data:")) or self.said.append(request.url))
        view.goto(file.as_uri())
        self.addCleanup(lambda: self.assertEqual(self.said, []))
        return view

    def texts(self, view, selector):
        return [one.strip() for one in view.locator(selector).all_text_contents()]

    def test_a_plan(self):
        theirs = answer("plan", EXAMPLE, "--top", 10)
        view = self.show(page("plan", EXAMPLE))
        self.assertEqual(view.locator("#verdict").text_content(), "Fits")
        self.assertIn(human(theirs["best"]["peak_bytes"]), self.texts(view, ".facts strong"))
        all_of = [theirs["best"], *theirs["alternatives"]]
        self.assertEqual(self.texts(view, "#runners tbody tr td:nth-child(3)"), [human(one["peak_bytes"]) for one in all_of])
        self.assertEqual(view.locator("#runners svg .point").count(), len(all_of))
        self.assertEqual(self.texts(view, "#runners tbody tr td:nth-child(4)"), [f"{one['headroom'] * 100:.1f} %" for one in all_of])

    def test_the_scatters_axes_are_where_they_say(self):
        theirs = answer("plan", EXAMPLE, "--top", 10)
        view = self.show(page("plan", EXAMPLE))
        ticks = view.evaluate("[...document.querySelectorAll('#runners svg .tick')].map(t => [t.textContent, Number(t.getAttribute('x')), Number(t.getAttribute('y'))])")
        shares = [(float(said.split()[0]) / 100, y - 4) for said, _, y in ticks if said.endswith("%")]
        times = [(float(said.split()[0]), x) for said, x, _ in ticks if said.endswith(" s")]
        where = view.evaluate("[...document.querySelectorAll('#runners svg .point')].map(p => [Number(p.dataset.point), Number(p.querySelector('circle').getAttribute('cx')), Number(p.querySelector('circle').getAttribute('cy'))])")
        along = lambda value, axis: axis[0][1] + (value - axis[0][0]) * (axis[1][1] - axis[0][1]) / (axis[1][0] - axis[0][0])
        all_of = [theirs["best"], *theirs["alternatives"]]
        self.assertEqual(len(where), len(all_of))
        for index, x, y in where:
            self.assertAlmostEqual(along(all_of[index]["headroom"], shares), y, delta=0.5)
            self.assertAlmostEqual(along(all_of[index]["step_seconds"], times), x, delta=0.5)

    def test_stages_and_items(self):
        bill = answer("bill", EXAMPLE, "--layout", "hand")
        view = self.show(page("bill", EXAMPLE, "--layout", "hand"))
        said = self.texts(view, "button.stage .what")
        self.assertEqual([one.split("iB")[0] + "iB" for one in said], [human(stage["peak_bytes"]) for stage in bill["stages"]])
        for number in (0, 3):
            view.locator("button.stage").nth(number).click()
            items = sorted(bill["stages"][number]["items"], key=lambda one: -one["bytes"])
            self.assertEqual(self.texts(view, "#items tbody td:nth-child(4)"), [human(one["bytes"]) for one in items])
        # Arrow keys go from stage to stage.
        view.locator("button.stage").nth(3).press("ArrowUp")
        self.assertEqual(view.locator("button.stage[aria-pressed=true]").get_attribute("aria-label").split(",")[0], "Stage 2")
        hidden = view.locator("#items .further").first
        self.assertFalse(hidden.is_visible())
        view.locator("#items button").click()
        self.assertTrue(hidden.is_visible())

    def test_the_step(self):
        theirs = answer("timeline", EXAMPLE, "--layout", "hand")
        view = self.show(page("timeline", EXAMPLE, "--layout", "hand"))
        slider = view.locator("[role=slider]")
        self.assertEqual(view.locator("#readout .moment strong").text_content(), human(theirs["peak_bytes"]))
        peak = int(slider.get_attribute("aria-valuenow"))
        slider.focus()
        view.keyboard.press("ArrowLeft")
        column = theirs["steady_step"]["columns"][peak - 1]
        self.assertEqual(view.locator("#readout .moment strong").text_content(), human(column["bytes"]))
        self.assertIn(human(column["bytes"]), slider.get_attribute("aria-valuetext"))
        view.keyboard.press("Home")
        self.assertEqual(view.locator("#readout .moment strong").text_content(), human(theirs["steady_step"]["columns"][0]["bytes"]))
        view.keyboard.press("p")
        self.assertEqual(slider.get_attribute("aria-valuenow"), str(peak))
        view.locator("#step svg").scroll_into_view_if_needed()
        box = view.locator("#step svg").bounding_box()
        view.mouse.move(box["x"] + box["width"] - 8.5, box["y"] + box["height"] / 2)
        # Chromium hands a pointer's move on with the next frame.
        from playwright.sync_api import expect
        expect(slider).to_have_attribute("aria-valuenow", str(len(theirs["steady_step"]["columns"]) - 1))
        view.get_by_role("radio", name="Around the peak").click()
        self.assertEqual(slider.get_attribute("aria-valuemax"), str(len(theirs["around_peak"]) - 1))
        self.assertEqual(view.locator("#readout .moment strong").text_content(), human(theirs["peak_bytes"]))

    def test_the_workshop(self):
        view = self.show(page("bill", "-", text=SMALL.format(**OWN)))
        peak = lambda: view.locator("#workshop-peak").text_content()
        bill = lambda **change: answer("bill", "-", text=SMALL.format(**{**OWN, **change}))
        curve = lambda: view.locator("#workshop .curve.on").get_attribute("d")
        self.assertEqual(peak(), human(bill()["peak_bytes"]))
        before = curve()
        view.get_by_role("radiogroup", name="ZeRO stage").get_by_role("radio", name="3").click()
        near = lambda shown, theirs: self.assertLess(abs(float(shown.split()[0]) * 2**30 - theirs["peak_bytes"]), 0.1 * theirs["peak_bytes"])
        near(peak(), bill(zero=3))
        view.get_by_role("radiogroup", name="Recompute").get_by_role("radio", name="full").click()
        near(peak(), bill(zero=3, recompute="full"))
        self.assertNotEqual(curve(), before)
        view.get_by_role("radiogroup", name="Attention").get_by_role("radio", name="unfused").click()
        view.get_by_label("Tokens a micro-batch").press("ArrowRight")
        changed = bill(zero=3, recompute="full", attention="unfused", seq="8Ki")
        near(peak(), changed)
        self.assertIn(f"activations {human(changed['stages'][0]['categories']['activations'])}", self.texts(view, "#workshop .sums-list li"))
        view.get_by_role("radiogroup", name="Sequences a micro-batch").get_by_role("radio", name="4").click()
        near(peak(), bill(zero=3, recompute="full", attention="unfused", seq="8Ki", mbs=4))
        self.assertIn("32Ki", view.locator("output").first.text_content())
        view.get_by_label("Model").select_option(index=1)
        self.assertNotEqual(peak(), human(changed["peak_bytes"]))
        view.get_by_role("button", name="Back to the file's").click()
        self.assertEqual(peak(), human(bill()["peak_bytes"]))
        self.assertEqual(curve(), before)

    def test_unlike_gpus_have_a_line_each(self):
        text = """cluster c { pool new { gpu = h100_sxm nodes = 1 gpus_per_node = 8 }  pool old { gpu = a100_40gb nodes = 2 gpus_per_node = 8 }  nic = 50 GB/s }
train t { model = llama3_8b  cluster = c  seq = 4Ki  batch = 96  framework = megatron }
layout l { tp = 8  pp = 3  mbs = 1  zero = 1  recompute = full  stage_pool = [new, old, old]  stage_layers = [12, 10, 10] }
"""
        theirs = answer("bill", "-", text=text)
        sizes = {human(stage["hbm_bytes"]) for stage in theirs["stages"]}
        self.assertEqual(len(sizes), 2)
        self.assertEqual(set(self.texts(self.show(page("bill", "-", text=text)), ".mark-label")), sizes)

    def test_nothing_fits(self):
        theirs = answer("plan", "-", text=TOO_LARGE)
        view = self.show(page("plan", "-", text=TOO_LARGE))
        self.assertEqual(view.locator("#verdict").text_content(), "Does not fit")
        self.assertEqual(self.texts(view, "#changes tbody th"), [one["change"] for one in theirs["relaxations"]])
        self.assertEqual(self.texts(view, "#core tbody th"), [one["name"] for one in theirs["core"]])

    def test_hostile_names_are_text(self):
        view = self.show(page("bill", "-", text=HOSTILE))
        self.assertNotEqual(view.title(), "owned")
        self.assertTrue(any("</script><script>" in one for one in self.texts(view, "#items tbody th")))

    def test_widths_and_colours(self):
        html = page("plan", EXAMPLE)
        for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light"), (320, "dark")):
            view = self.show(html, width, scheme)
            self.assertLessEqual(view.evaluate("document.documentElement.scrollWidth"), width)
            paper = view.evaluate("getComputedStyle(document.body).backgroundColor")
            self.assertEqual(sum(map(int, re.findall(r"\d+", paper))) < 200, scheme == "dark")
            if SHOTS:
                view.screenshot(path=pathlib.Path(SHOTS, f"{scheme}-{width}.png"), full_page=True)
        if SHOTS:
            self.show(html).pdf(path=pathlib.Path(SHOTS, "print.pdf"), format="A4")

    def test_every_control_has_a_name(self):
        view = self.show(page("plan", EXAMPLE))
        unnamed = view.evaluate("""[...document.querySelectorAll('button, select, input, [role=slider], svg[role=img], [role=radiogroup]')]
            .filter(e => !e.getAttribute('aria-label') && !e.textContent.trim() && !(e.labels && e.labels.length)).map(e => e.outerHTML.slice(0, 90))""")
        self.assertEqual(unnamed, [])
        self.assertEqual(view.locator("h1").count(), 1)
        self.assertEqual(view.evaluate("[...document.querySelectorAll('table')].filter(t => !t.caption || !t.tHead).length"), 0)

    def test_without_scripts(self):
        view = self.show(page("bill", EXAMPLE, "--layout", "hand"), scripts=False)
        self.assertIn("backward of layer 19", view.locator("pre.report").text_content())

    def test_first_paint(self):
        view = self.show(page("bill", "-", text=SIXTEEN))
        paint = view.evaluate("""new Promise(done => new PerformanceObserver(list => list.getEntriesByName('first-contentful-paint').forEach(e => done(e.startTime)))
            .observe({ type: 'paint', buffered: true }))""")
        print(f"first paint of a 16-stage page: {paint:.0f} ms", file=sys.stderr)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    in_browser = "--browser" in arguments
    if "--shots" in arguments:
        SHOTS = arguments.pop(arguments.index("--shots") + 1)
        arguments.remove("--shots")
    PROGRAM = str(pathlib.Path([one for one in arguments if not one.startswith("-")][0]).resolve())
    if in_browser:
        try:
            import playwright.sync_api
        except ImportError:
            print("skipped: no playwright package for this Python (pip install playwright)")
            sys.exit(SKIPPED)
        if not (os.environ.get("PLIMSOLL_CHROMIUM") or shutil.which("chromium")):
            print("skipped: no Chromium (Debian: apt-get install chromium; or PLIMSOLL_CHROMIUM)")
            sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], defaultTest="Browser" if in_browser else "File")
