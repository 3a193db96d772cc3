"""chat: commands, history, interrupts and multi-line messages, in a pseudo-terminal and through pipes."""
import json
import re
import stat
import unittest

from support import Case, Terminal, chat_model, environment, hostile_folder, plain_model


class ChatCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)

    def setUp(self):
        super().setUp()
        self.env["XDG_STATE_HOME"] = str(self.folder / "state")
        self.model = str(self.write("chat.gguf", chat_model(self.cases)))

    def chat(self, *options, **changes):
        terminal = Terminal("chat", "-m", self.model, "--temp", "0", "-n", "4", *options, env=environment(**{**self.env, **changes}))
        self.addCleanup(terminal.close)
        terminal.read_until("> ")
        return terminal


class InATerminal(ChatCase):
    def ask(self, chat, message):
        """Says something and waits for the next prompt: control keys mean something only to a waiting editor."""
        chat.send(message + "\r")
        chat.read_until(r"prefill \d+ tokens[^\n]*\n.*> ")

    def test_answers_and_leaves_on_end_of_input(self):
        chat = self.chat()
        self.ask(chat, "hello")
        chat.send("\x04")
        self.assertEqual(chat.finish(), 0)

    def test_later_turns_compute_only_what_is_new(self):
        chat = self.chat()
        chat.send("hello there, this is a rather long first message\r")
        first = int(re.search(rb"prefill (\d+)", chat.read_until(r"prefill \d+ tokens")).group(1))
        chat.send("hi\r")
        second = int(re.search(rb"prefill (\d+)", chat.read_until(r"prefill \d+ tokens")).group(1))
        self.assertLess(second, first)
        chat.send("/exit\r")
        self.assertEqual(chat.finish(), 0)

    def test_help_names_every_command(self):
        chat = self.chat()
        chat.send("/help\r")
        text = chat.read_until("Ctrl-C stops an answer")
        for command in (b"/help", b"/system", b"/regen", b"/save", b"/clear", b"/exit"):
            self.assertIn(command, text)

    def test_unknown_commands_are_said(self):
        chat = self.chat()
        chat.send("/frobnicate\r")
        chat.read_until("unknown command /frobnicate")
        chat.send("/exit\r")
        self.assertEqual(chat.finish(), 0)

    def test_interrupt_stops_the_answer_not_the_program(self):
        chat = self.chat("-n", "1000000", "--ignore-eos", "-c", "512")
        chat.send("go on for ever\r")
        chat.read_until("ever\r?\n.")
        chat.send("\x03")
        chat.read_until("> ")
        chat.send("/help\r")
        chat.read_until("/regen")
        chat.send("/exit\r")
        self.assertEqual(chat.finish(), 0)

    def test_interrupt_at_an_empty_prompt_says_how_to_leave(self):
        chat = self.chat()
        chat.send("half a line")
        chat.read_until("half a line")
        chat.send("\x03")
        chat.read_until("> ")
        chat.send("\x03")
        chat.read_until("Ctrl-D or /exit leaves.*> ")
        chat.send("\x04")
        self.assertEqual(chat.finish(), 0)

    def test_history_is_private_and_comes_back(self):
        chat = self.chat()
        self.ask(chat, "a memorable message")
        chat.send("\x04")
        self.assertEqual(chat.finish(), 0)
        history = self.folder / "state" / "honeycrisp" / "history"
        self.assertEqual(stat.S_IMODE(history.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(history.parent.stat().st_mode), 0o700)
        chat = self.chat()
        chat.send("\x1b[A")
        chat.read_until("a memorable message")
        chat.send("\x15\x04")
        self.assertEqual(chat.finish(), 0)

    def test_line_editing_of_characters_beyond_ascii(self):
        chat = self.chat()
        chat.send("/système\x7f\x7f\r")
        chat.read_until("unknown command /systè.*> ")
        chat.send("\x04")
        self.assertEqual(chat.finish(), 0)

    def test_messages_of_several_lines(self):
        chat = self.chat()
        chat.send("one \\\r")
        chat.read_until("… ")
        chat.send("two\r")
        chat.read_until("prefill")
        chat.read_until("> ")
        chat.send('"""\r')
        chat.read_until("… ")
        chat.send("/exit\r")
        chat.read_until("… ")
        chat.send('"""\r')
        chat.read_until("prefill")
        path = self.folder / "saved.json"
        chat.send(f"/save {path}\r")
        chat.read_until("Saved")
        users = [m["content"] for m in json.loads(path.read_text())["messages"] if m["role"] == "user"]
        self.assertEqual(users, ["one \ntwo", "/exit"])

    def test_no_colours_where_they_are_unwanted(self):
        chat = self.chat(NO_COLOR="1")
        chat.send("/frobnicate\r")
        self.assertNotIn(b"\x1b[31m", chat.read_until("unknown command /frob"))

    def test_control_characters_of_the_model_do_not_reach_the_terminal(self):
        chat = self.chat("--temp", "100", "-n", "100", "--ignore-eos", TERM="dumb")
        chat.send("hi\r")
        text = chat.read_until("prefill")
        self.assertNotRegex(text, rb"[\x00-\x06\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")


class ThroughPipes(ChatCase):
    def talk(self, *lines, options=()):
        return self.run_binary("chat", "-m", self.model, "--temp", "0", "-n", "4", "-q", *options,
                               stdin="".join(line + "\n" for line in lines))

    def saved(self, *lines, options=()):
        path = self.folder / "saved.json"
        path.unlink(missing_ok=True)
        result = self.talk(*lines, f"/save {path}", options=options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [(m["role"], m["content"]) for m in json.loads(path.read_text())["messages"]]

    def test_each_line_is_a_message(self):
        messages = self.saved("one", "", "two")
        self.assertEqual([role for role, _ in messages], ["user", "assistant"] * 2)
        self.assertEqual([text for role, text in messages if role == "user"], ["one", "two"])

    def test_stdout_has_the_answers_only(self):
        result = self.talk("one", "/help", "/bogus", "/system be brief")
        answer = dict(self.saved("one"))["assistant"]
        self.assertEqual(result.stdout.decode(), answer + "\n")
        self.assertNotIn(b"\x1b", result.stderr)

    def test_system_text_comes_first_and_can_be_changed(self):
        self.assertEqual(self.saved("hi", options=("--system", "A"))[0], ("system", "A"))
        self.assertEqual(self.saved("/system B", "hi", options=("--system", "A"))[0], ("system", "B"))
        self.assertIn(b"System text: A", self.talk("/system", options=("--system", "A")).stderr)

    def test_clear_forgets_messages_and_keeps_the_system_text(self):
        messages = self.saved("one", "/clear", "two", options=("--system", "A"))
        self.assertEqual([text for role, text in messages if role != "assistant"], ["A", "two"])

    def test_regen_answers_the_last_message_again(self):
        self.assertEqual([role for role, _ in self.saved("one", "/regen")], ["user", "assistant"])
        self.assertIn(b"no message", self.talk("/regen").stderr)
        answers = {self.saved("one", *["/regen"] * n, options=("--temp", "2", "--seed", "3", "-n", "12"))[1]
                   for n in range(3)}
        self.assertGreater(len(answers), 1)

    def test_a_conversation_that_was_saved_can_be_rendered(self):
        self.saved("one")
        text = self.succeed("render", "-m", self.model, "--json", str(self.folder / "saved.json")).decode()
        self.assertTrue(text.startswith("[user]one\n[assistant]"), text)

    def test_save_never_overwrites(self):
        existing = self.write("existing.json", "mine")
        self.assertIn(b"exists already", self.talk("one", f"/save {existing}").stderr)
        self.assertEqual(existing.read_text(), "mine")
        self.assertIn(b"needs the name", self.talk("/save").stderr)
        self.assertIn(b"cannot", self.talk(f"/save {self.folder}/absent/x.json").stderr)

    def test_a_model_without_a_template_is_refused(self):
        line = self.fail_with(1, "chat", "-m", str(self.write("plain.gguf", plain_model(self.cases))))
        self.assertIn("--chat-template FILE", line)

    def test_a_message_longer_than_the_context_is_refused_and_the_chat_goes_on(self):
        result = self.talk("x " * 400, "hi", options=("-c", "64"))
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"/clear", result.stderr)
        self.assertEqual(result.stdout.count(b"\n") > 0, True)


if __name__ == "__main__":
    unittest.main()
