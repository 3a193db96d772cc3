"""inspect on models in the sizes of published ones: quickly, without reading weights, and with the right numbers."""
import json
import os
import subprocess
import unittest

import real_sizes
from support import BINARY, SANITIZED, Case

GB = 1e9
F16 = 2
PAGE = 64  # positions


def kept(window):
    """Positions that a layer with a window keeps of a long context."""
    return (-(-window // PAGE) + 1) * PAGE


class RealSizes(Case):
    def inspect(self, model, context, *arguments, backend="cpu"):
        """The report of a sparse file, checked for time and memory."""
        path = self.folder / "model.gguf"
        model.write(path)
        self.assertLess(path.stat().st_blocks * 512, 0.01 * GB, "a file system with holes is needed")
        process = subprocess.Popen([BINARY, "inspect", str(path), "--context", str(context), "--backend", backend,
                                    *arguments], stdout=subprocess.PIPE, env=self.env)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        self.assertEqual(process.returncode, 0)
        if not SANITIZED:
            self.assertLess(usage.ru_utime, 1)  # holes cost the system time at their first reading
            self.assertLess(usage.ru_maxrss * 1024, 0.1 * GB, "weights were read")
        return output

    def report(self, model, context, layers, ops):
        """The same as JSON, with what holds for every model: ops of each kind, and the whole file accounted for."""
        report = json.loads(self.inspect(model, context, "--json", backend="reference"))
        self.assertIsNone(report["program_error"])
        self.assertEqual(report["model"]["layers"], layers)
        counts = {}
        for op in report["program"]["ops"]:
            counts[op["op"]] = counts.get(op["op"], 0) + 1
        self.assertEqual(counts, ops)
        self.assertEqual(report["per_token"]["weights"], sum(op["weight_bytes"] for op in report["program"]["ops"]))
        text = self.inspect(model, context, "--program").decode()
        self.assertEqual(text.count("\n  blk."), sum(n for op, n in ops.items() if op not in ("embed", "logits")) -
                         (1 if "per_layer_proj" in text else 0))
        return report

    def test_gemma4_31b(self):
        model = real_sizes.gemma4_31b()
        report = self.report(model, 32768, 60, {"embed": 1, "project": 240, "attend": 60, "logits": 1})
        memory, token = report["memory"], report["per_token"]
        full, sliding = 2 * 4 * 512 * F16, 2 * 16 * 256 * F16  # keys and values of a position
        self.assertEqual(token["cache"], 10 * full)
        self.assertEqual(memory["cache"], 10 * full * 32768 + 50 * sliding * kept(1024))
        self.assertEqual((token["state"], token["experts"]), (0, 0))
        self.assertAlmostEqual(report["elements"] / GB, 30.7, delta=0.1)
        matrices = sum(real_sizes.tensor_bytes(kind, dims) for kind, dims, _ in model.tensors.values() if len(dims) > 1)
        self.assertEqual(memory["weights"], matrices)
        self.assertEqual(token["weights"] - 5376 // 256 * 210, matrices)  # all, and one row of the tied table once more
        self.assertLess(memory["total"], 24 * GB)

    def test_gemma4_e4b(self):
        model = real_sizes.gemma4_e4b()
        # A layer: q k v, o, gate up, down, inp_gate, proj; a shared one without k and v is as many.
        report = self.report(model, 32768, 42, {"embed": 2, "project": 42 * 6 + 1, "attend": 42, "logits": 1})
        memory, token = report["memory"], report["per_token"]
        full, sliding = 2 * 2 * 512 * F16, 2 * 2 * 256 * F16
        self.assertEqual(memory["cache"], 4 * full * 32768 + 20 * sliding * kept(512))  # 24 layers have their own
        self.assertAlmostEqual(report["elements"] / GB, 7.5, delta=0.2)
        # Of the per-layer table, nearly half of the file, a row only; of the tied one all, and a row once more.
        rows = 256 * 42 // 256 * 210 + 2560 // 256 * 210
        self.assertEqual(token["weights"], memory["weights"] - model.bytes_of("per_layer_token_embd") + rows)
        self.assertIn("54 tensors are not used", report["model"]["notes"][0])  # k, v and k's norm of 18 layers

    def test_qwen3_30b_a3b(self):
        model = real_sizes.qwen3_30b_a3b()
        report = self.report(model, 32768, 48,
                             {"embed": 1, "project": 96, "attend": 48, "mix_experts": 48, "logits": 1})
        memory, token = report["memory"], report["per_token"]
        self.assertEqual(memory["cache"], 48 * 2 * 4 * 128 * F16 * 32768)
        self.assertEqual((token["experts"], token["of_experts"]), (8, 128))
        self.assertAlmostEqual(report["elements"] / GB, 30.5, delta=0.1)
        experts = 48 * model.bytes_of(*(f"blk.0.ffn_{part}_exps" for part in ("gate", "up", "down")))
        unread = experts * 120 // 128 + model.bytes_of("token_embd") - 2048 // 256 * 144
        self.assertEqual(token["weights"], memory["weights"] - unread)
        self.assertLess(token["weights"], 0.12 * memory["weights"])

    def test_a_context_beyond_any_memory_is_said_and_the_program_shown(self):
        model, positions = real_sizes.qwen3_30b_a3b(), 1 << 24
        report = json.loads(self.inspect(model, positions, "--kv-type", "f32", "--json"))
        self.assertGreater(report["memory"]["cache"], 3e12)
        self.assertIn("lower the context", report["no_room"])
        self.assertGreater(len(report["program"]["ops"]), 0)
        text = self.inspect(model, positions, "--kv-type", "f32").decode()
        self.assertRegex(text, r"(?m)^Does not fit +a context of 16777216 needs ")

    def test_qwen35_27b(self):
        model = real_sizes.qwen35_27b()
        # A recurrent layer: in, delta rule, out, gate up, down. An attending one: q k v, attend, o, gate up, down.
        report = self.report(model, 32768, 64,
                             {"embed": 1, "project": 64 * 4, "delta_net": 48, "attend": 16, "logits": 1})
        memory = report["memory"]
        self.assertEqual(memory["cache"], 16 * 2 * 4 * 256 * F16 * 32768)
        channels = (16 + 16 + 48) * 128
        state = 48 * 4 * (48 * 128 * 128 + 3 * channels)  # of f32
        self.assertEqual(report["per_token"]["state"], state)
        self.assertEqual(memory["states"] % state, 0)  # checkpoints too
        self.assertIn("layers from 64 on", report["model"]["notes"][0])
        self.assertIn("157 MB of recurrent state read and written", self.inspect(model, 32768).decode())
        last = sum(real_sizes.tensor_bytes(kind, dims) for name, (kind, dims, _) in model.tensors.items()
                   if name.startswith("blk.64.") and len(dims) > 1)
        self.assertLess(memory["weights"], model.total_bytes() - last)

    def test_gpt_oss_20b(self):
        model = real_sizes.gpt_oss_20b()
        report = self.report(model, 32768, 24,
                             {"embed": 1, "project": 48, "attend": 24, "mix_experts": 24, "logits": 1})
        memory, token = report["memory"], report["per_token"]
        row = 2 * 8 * 64 * F16
        self.assertEqual(token["cache"], 12 * row)
        self.assertEqual(memory["cache"], 12 * row * 32768 + 12 * row * kept(128))
        self.assertEqual((token["experts"], token["of_experts"]), (4, 32))
        self.assertAlmostEqual(report["elements"] / GB, 20.9, delta=0.1)
        self.assertAlmostEqual(memory["weights"] / GB, 12.1, delta=0.3)
        self.assertLess(token["weights"], 3 * GB)
        text = self.inspect(model, 32768).decode()
        self.assertIn("(4 of 32 experts)", text)


if __name__ == "__main__":
    unittest.main()
