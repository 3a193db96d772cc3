"""render: chat templates applied to JSON, exactly."""
import json
import unittest

from support import CHAT_TEMPLATE, Case, chat_model, hostile_folder, plain_model


class Render(Case):
    def render(self, template, variables):
        template_file = self.write("template.jinja", template)
        json_file = self.write("variables.json", json.dumps(variables))
        return self.succeed("render", "--template", str(template_file), "--json", str(json_file)).decode()

    def refused(self, template, variables):
        template_file = self.write("template.jinja", template)
        json_file = self.write("variables.json", variables if isinstance(variables, (str, bytes)) else json.dumps(variables))
        return self.fail_with(1, "render", "--template", str(template_file), "--json", str(json_file))

    def test_exact_text_without_a_newline_of_its_own(self):
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello\n"}]
        self.assertEqual(self.render(CHAT_TEMPLATE, {"messages": messages}), "[user]Hi\n[assistant]Hello\n\n")
        self.assertEqual(self.render(CHAT_TEMPLATE, {"messages": [], "add_generation_prompt": True}), "[assistant]")

    def test_any_variable_reaches_the_template(self):
        template = "{{ bos_token }}|{{ tools | tojson }}|{{ enable_thinking }}|{{ n + 1 }}|{{ x }}|{{ nothing }}|{{ absent is defined }}"
        variables = {"bos_token": "<s>", "tools": [{"b": 1, "a": [True, None, "é"]}], "enable_thinking": False, "n": 41,
                     "x": 1.5, "nothing": None}
        self.assertEqual(self.render(template, variables),
                         '<s>|[{"b": 1, "a": [true, null, "é"]}]|False|42|1.5|None|False')

    def test_tools_that_are_not_given_are_none(self):
        self.assertEqual(self.render("{{ tools is none }} {{ add_generation_prompt }}", {}), "True False")

    def test_special_tokens_of_the_model_are_known(self):
        model = self.write("model.gguf", chat_model(hostile_folder(type(self))))
        json_file = self.write("variables.json", '{"messages": [{"role": "user", "content": "Hi"}]}')
        text = self.succeed("render", "-m", str(model), "--json", str(json_file)).decode()
        self.assertTrue(text.startswith("[user]Hi\n"), text)

    def test_faults_of_templates_are_named(self):
        self.assertIn("nosuchfilter", self.refused("{{ messages | nosuchfilter }}", {"messages": []}))
        self.assertIn("roles must alternate", self.refused("{{ raise_exception('roles must alternate') }}", {}))
        self.refused("{% if %}", {})
        self.refused("{% for i in range(10**9) %}x{% endfor %}", {})
        self.refused("{{ '\\x1b[31m' | nosuchfilter }}", {})

    def test_faults_of_the_json_are_named(self):
        for text in ("", "{", "[]", "3", '{"messages": ]}', b"\xff", '{"n": 99999999999999999999999}'[:-1] + "x",
                     '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"):
            self.assertIn("variables.json", self.refused("x", text))

    def test_files_that_are_not_there(self):
        json_file = self.write("variables.json", "{}")
        self.assertIn("absent.jinja",
                      self.fail_with(1, "render", "--template", str(self.folder / "absent.jinja"), "--json", str(json_file)))
        self.assertIn("absent.json", self.fail_with(1, "render", "--template", str(json_file), "--json",
                                                    str(self.folder / "absent.json")))

    def test_a_model_without_a_template_says_how_to_give_one(self):
        model = self.write("plain.gguf", plain_model(hostile_folder(type(self))))
        json_file = self.write("variables.json", "{}")
        self.assertIn("--template", self.fail_with(1, "render", "-m", str(model), "--json", str(json_file)))


if __name__ == "__main__":
    unittest.main()
