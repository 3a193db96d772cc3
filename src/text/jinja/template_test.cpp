// Renders against what Python rendered (tests/data/templates), and what Python has no word for: marks, limits, stacks.
#include "text/jinja/template.h"

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <pthread.h>
#include <thread>

namespace honeycrisp::text::jinja {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::filesystem::path kData = std::filesystem::path(HONEYCRISP_TEST_DATA) / "templates";

Value to_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return {};
    case json::kind::bool_: return value.get_bool();
    case json::kind::int64: return static_cast<int64_t>(value.get_int64());
    case json::kind::uint64: return static_cast<int64_t>(value.get_uint64());
    case json::kind::double_: return value.get_double();
    case json::kind::string: return std::string(value.get_string());
    case json::kind::array: {
      std::vector<Value> items;
      for (const auto& item : value.get_array()) items.push_back(to_value(item));
      return Value::list(std::move(items));
    }
    case json::kind::object: break;
  }
  Dict dict;
  for (const auto& entry : value.get_object()) dict.set(Value(std::string(entry.key())), to_value(entry.value()));
  return Value::dict(std::move(dict));
}

RenderOptions fixed_clock() {
  RenderOptions options;
  options.local_time = [] {
    std::tm time{};  // Sunday 2026-07-26 13:05:09
    time.tm_year = 126, time.tm_mon = 6, time.tm_mday = 26, time.tm_hour = 13, time.tm_min = 5, time.tm_sec = 9;
    time.tm_wday = 0, time.tm_yday = 206;
    return time;
  };
  return options;
}

std::string join(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

/// The output, or "error: …".
std::string render(std::string_view source, const Dict& variables = {}, const RenderOptions& options = fixed_clock()) {
  const auto parsed = Template::parse(source);
  if (!parsed) return "error: " + parsed.error().message;
  const auto rendered = parsed->render(variables, options);
  return rendered ? join(*rendered) : "error: " + rendered.error().message;
}

/// Checks one render against {"text": …}, {"raises": …} or {"fails": …}.
void expect_outcome(std::string_view source, const Dict& variables, const json::object& expected) {
  const auto parsed = Template::parse(source);
  if (!parsed) {
    EXPECT_TRUE(expected.contains("fails")) << parsed.error().message;
    return;
  }
  const auto rendered = parsed->render(variables, fixed_clock());
  if (expected.contains("text")) {
    ASSERT_TRUE(rendered) << rendered.error().message;
    EXPECT_EQ(join(*rendered), std::string(expected.at("text").get_string()));
  } else if (expected.contains("raises")) {
    ASSERT_FALSE(rendered);
    EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidInput);
    EXPECT_EQ(rendered.error().message, std::string(expected.at("raises").get_string()));
  } else {
    ASSERT_FALSE(rendered) << join(*rendered);
    EXPECT_EQ(rendered.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(rendered.error().message, testing::StartsWith("line "));
  }
}

TEST(JinjaTemplate, conversations_render_as_in_python) {
  const json::value conversations = json::parse(read_file(kData / "conversations.json"));
  size_t templates = 0;
  for (const auto& file : std::filesystem::directory_iterator(kData)) {
    if (file.path().extension() != ".jinja") continue;
    ++templates;
    const std::string source = read_file(file.path());
    const json::value expected = json::parse(read_file(kData / (file.path().stem().string() + ".expected.json")));
    for (const auto& conversation : conversations.get_array()) {
      const json::string& name = conversation.at("name").get_string();
      SCOPED_TRACE(file.path().filename().string() + " with " + std::string(name));
      const Value variables = to_value(conversation.at("variables"));
      expect_outcome(source, variables.as_dict(), expected.at(name).get_object());
    }
  }
  EXPECT_EQ(templates, 8u);
}

/// FNV-1a of 64 bits, as hexadecimal digits.
std::string hash(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325;
  for (const unsigned char byte : text) value = (value ^ byte) * 0x100000001B3;
  return fmt::format("{:016x}", value);
}

// Templates of published models, which tests find in HONEYCRISP_VOCAB_DIR/templates: hashes of what Python renders.
TEST(JinjaTemplate, published_templates_render_as_in_python) {
  const char* folder = std::getenv("HONEYCRISP_VOCAB_DIR");
  const std::filesystem::path templates = std::filesystem::path(folder == nullptr ? "" : folder) / "templates";
  if (folder == nullptr || !std::filesystem::exists(templates))
    GTEST_SKIP() << "set HONEYCRISP_VOCAB_DIR to a folder with templates/ (scripts/test fills one)";
  const json::value conversations = json::parse(read_file(kData / "conversations.json"));
  const json::value published = json::parse(read_file(kData / "published.json"));
  size_t found = 0;
  for (const auto& entry : published.as_array()) {
    const auto path = templates / std::string(entry.at("template").as_string());
    if (!std::filesystem::exists(path)) continue;
    const std::string source = read_file(path);
    if (hash(source) != std::string(entry.at("hash").as_string())) continue;  // another release of it
    ++found;
    const json::array& outcomes = entry.at("outcomes").as_array();
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const auto& conversation = conversations.as_array()[i];
      SCOPED_TRACE(path.filename().string() + " with " + std::string(conversation.at("name").as_string()));
      const Value variables = to_value(conversation.at("variables"));
      if (outcomes[i].is_string())
        EXPECT_EQ(hash(render(source, variables.as_dict())), std::string(outcomes[i].as_string()));
      else
        expect_outcome(source, variables.as_dict(), outcomes[i].as_object());
    }
  }
  EXPECT_GT(found, 50u);
}

TEST(JinjaTemplate, snippets_render_as_in_python) {
  const json::value snippets = json::parse(read_file(kData / "snippets.json"));
  const Value variables = to_value(snippets.at("variables"));
  for (const auto& snippet : snippets.at("cases").get_array()) {
    const std::string source(snippet.at("template").get_string());
    SCOPED_TRACE(source);
    expect_outcome(source, variables.as_dict(), snippet.get_object());
  }
  EXPECT_GT(snippets.at("cases").get_array().size(), 1000u);
}

TEST(JinjaTemplate, errors_name_the_line_and_the_thing) {
  EXPECT_EQ(render("a\n{{ 1 }}\n{% if x.y %}{% endif %}"), "error: line 3: 'x' is undefined");
  EXPECT_EQ(render("\n{{ {}.a.b }}"), "error: line 2: 'dict object' has no attribute 'a'");
  EXPECT_EQ(render("{{ 1|nope }}"), "error: line 1: no filter named 'nope'");
  EXPECT_EQ(render("{{ 1 is nope }}"), "error: line 1: no test named 'nope'");
  EXPECT_THAT(render("{{ nope(1) }}"), HasSubstr("'nope' is undefined"));
  EXPECT_THAT(render("{{ 'a'.nope() }}"), HasSubstr("'str object' has no attribute 'nope'"));
  EXPECT_THAT(render("\n\n{% do x.append(1) %}"), HasSubstr("line 3: encountered unknown tag 'do'"));
  EXPECT_THAT(render("{% include 'x' %}"), HasSubstr("'include' is not supported"));
  EXPECT_THAT(render("{{ [].append(1) }}"), HasSubstr("access to attribute 'append' of 'list' object is unsafe"));
  EXPECT_THAT(render("{% for x in [1] %}"), HasSubstr("unexpected end of template, looking for 'endfor' or 'else'"));
  EXPECT_THAT(render("{{ 9223372036854775807 + 1 }}"), HasSubstr("overflow"));
  EXPECT_THAT(render("{{ 9223372036854775808 }}"), HasSubstr("64 bits"));
}

TEST(JinjaTemplate, raise_exception_keeps_its_own_words) {
  const auto parsed = Template::parse("{{ raise_exception('roles must alternate') }}");
  ASSERT_TRUE(parsed);
  const auto rendered = parsed->render({});
  ASSERT_FALSE(rendered);
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidInput);
  EXPECT_EQ(rendered.error().message, "roles must alternate");
}

// Marks

/// Renders with `x`, `y` and `l` input and shows input in brackets.
std::string render_marked(std::string_view source) {
  Dict variables;
  variables.set("x", mark_input(Value("ab cd")));
  variables.set("y", mark_input(Value("<\"é\">")));
  variables.set("l", mark_input(Value::list({Value("p"), Value("q")})));
  Dict dict;
  dict.set("k", "v");
  variables.set("d", mark_input(Value::dict(std::move(dict))));
  const auto parsed = Template::parse(source);
  if (!parsed) return parsed.error().message;
  const auto rendered = parsed->render(variables);
  if (!rendered) return rendered.error().message;
  std::string shown;
  for (const Segment& segment : *rendered) shown += segment.is_input ? "[" + segment.text + "]" : segment.text;
  return shown;
}

TEST(JinjaMarks, survive_every_operation_on_text) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a{{ x }}b", "a[ab cd]b"},
      {"{{ 'p' + x + 'q' }}", "p[ab cd]q"},
      {"{{ 'p' ~ x ~ 1 }}", "p[ab cd]1"},
      {"{{ x + y }}", "[ab cd<\"é\">]"},
      {"{{ x[1:4] }}|{{ x[0] }}|{{ ('-' ~ y)[::-1] }}", "[b c]|[a]|[>\"é\"<]-"},
      {"{{ ('  ' + x + ' ')|trim }}|{{ x.strip('a') }}", "[ab cd]|[b cd]"},
      {"{% for w in ('z ' + x).split() %}{{ w }},{% endfor %}", "z,[ab],[cd],"},
      {"{{ x|replace('b', 'B') }}|{{ 'abc'|replace('b', x) }}", "[a]B[ cd]|a[ab cd]c"},
      {"{{ l|join(', ') }}|{{ x.join(['1', '2']) }}", "[p], [q]|1[ab cd]2"},
      {"{{ x|upper }}|{{ ('k' + x)|title }}|{{ x|capitalize }}", "[AB CD]|K[ab Cd]|[Ab cd]"},
      {"{{ y|tojson }}|{{ d|tojson }}", "\"[<\\\"é\\\">]\"|{\"[k]\": \"[v]\"}"},
      {"{{ l }}|{{ y|e }}", "['[p]', '[q]']|[&lt;&#34;é&#34;&gt;]"},
      {"{{ '%s-%5s'|format(x, l[0]) }}|{{ '{}:{:>3}'.format(x, l[0]) }}", "[ab cd]-    [p]|[ab cd]:  [p]"},
      {"{{ x|center(9) }}|{{ x|indent(2, true) }}", "  [ab cd]  |  [ab cd]"},
      {"{% set z %}<{{ x }}>{% endset %}{{ z }}", "<[ab cd]>"},
      {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x) }}", "([ab cd])"},
      {"{% filter upper %}k{{ x }}{% endfilter %}", "K[AB CD]"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "[k]=[v]"},
      {"{{ x * 2 }}|{{ l|map('upper')|list|first }}|{{ l|last }}", "[ab cdab cd]|[P]|[q]"},
      {"{{ x|truncate(4, true, '~', 0) }}|{{ x|wordwrap(3) }}|{{ x|string|safe }}", "[ab ]~|[ab]\n[cd]|[ab cd]"},
      {"{{ 'same' if x == 'ab cd' and 'ab' in x else 'other' }}", "same"},
      {"{{ x.splitlines()[0].partition(' ')[2].zfill(4).ljust(6, '.') }}", "00[cd].."},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render_marked(source), expected) << source;
}

// Limits

RenderOptions small_limits() {
  RenderOptions options;
  options.limits.steps = 100'000;
  options.limits.text_bytes = 1 << 20;
  options.limits.output_bytes = 1 << 16;
  return options;
}

TEST(JinjaLimits, runaway_templates_end_with_an_error) {
  const std::string_view sources[] = {
      "{{ 'a' * 10**9 }}",
      "{{ [0] * 10**9 }}",
      "{{ 'x'.ljust(10**12) }}",
      "{{ '%1000000000d' % 1 }}",
      "{{ '{:99999999}'.format(1) }}",
      "{% for i in range(10**9) %}{% endfor %}",
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% for i in range(10000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{{ [1, 2, 3]|batch(10**12, 0)|list }}",
      "{{ [1]|slice(10**12)|list }}",
      "{{ ''.join(['abc'] * 100000) * 1000 }}",
      "{{ 'a'|indent(10**12, true) }}",
      "{{ [1]|tojson(indent=10**6) }}",
  };
  for (const std::string_view source : sources) {
    const std::string result = render(source, {}, small_limits());
    EXPECT_THAT(result, testing::StartsWith("error: line ")) << source;
  }
}

std::string repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// Sources that nest or chain without end; each must come back, as text or as an error.
std::vector<std::string> deep_sources() {
  std::vector<std::string> sources;
  for (const size_t n : {50, 200, 5000}) {
    sources.push_back("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}");
    sources.push_back("{{ " + repeat("[", n) + repeat("]", n) + " }}");
    sources.push_back("{{ " + repeat("{1:", n) + "1" + repeat("}", n) + " }}");
    sources.push_back("{{ " + repeat("not ", n) + "1 }}");
    sources.push_back("{{ " + repeat("-", n) + "1 }}");
    sources.push_back("{{ " + repeat("a(", n) + "1" + repeat(")", n) + " }}");
    sources.push_back("{{ " + repeat("1 if (", n) + "1" + repeat(")", n) + " }}");
    sources.push_back("{{ 1" + repeat(" + 1", n) + " }}");
    sources.push_back("{{ 1" + repeat(" if 1 else 1", n) + " }}");
    sources.push_back("{{ 'a'" + repeat("|upper", n) + " }}");
    sources.push_back(repeat("{% if 1 %}", n) + repeat("{% endif %}", n));
    sources.push_back("{% if 0 %}" + repeat("{% elif 0 %}", n) + "{% endif %}");
    sources.push_back(repeat("{% for x in [1] %}", n) + repeat("{% endfor %}", n));
    sources.push_back(repeat("{% macro m() %}", n) + repeat("{% endmacro %}", n));
    sources.push_back("{% set " + repeat("(", n) + "a" + repeat(")", n) + " = 1 %}");
    sources.push_back("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(" + std::to_string(n) +
                      ") }}");
    sources.push_back(
        "{% macro m(n) %}{% for i in [1] %}{% if n %}{% set x %}{{ (m(n - 1) ~ '')|trim }}{% endset %}{{ x }}"
        "{% endif %}{% endfor %}{% endmacro %}{{ m(" +
        std::to_string(n) + ") }}");
    sources.push_back(
        "{% macro w() %}{{ caller() }}{% endmacro %}{% macro m(n) %}{% call w() %}{% if n %}{{ m(n - 1) }}"
        "{% endif %}{% endcall %}{% endmacro %}{{ m(" +
        std::to_string(n) + ") }}");
    sources.push_back("{% set ns = namespace(v=[1]) %}{% for i in range(" + std::to_string(n) +
                      ") %}{% set ns.v = [ns.v, {'k': ns.v}] %}{% endfor %}{{ ns.v == ns.v }}");
    sources.push_back("{% set ns = namespace() %}{% for i in range(" + std::to_string(n) +
                      ") %}{% for j in [ns.l] %}{{ loop.changed(ns.l) }}{% set ns.l = loop %}{% endfor %}{% endfor %}");
  }
  return sources;
}

void* render_deep_sources(void*) {
  for (const std::string& source : deep_sources()) {
    const std::string result = render(source, {}, small_limits());
    EXPECT_TRUE(result.size() < 1 << 20) << source.substr(0, 80);
  }
  return nullptr;
}

TEST(JinjaLimits, nesting_ends_with_an_error_on_small_stacks) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, render_deep_sources, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(JinjaLimits, useful_depths_are_allowed) {
  EXPECT_EQ(render("{{ " + repeat("(", 40) + "1" + repeat(")", 40) + " }}"), "1");
  EXPECT_EQ(render(repeat("{% if 1 %}", 40) + "x" + repeat("{% endif %}", 40)), "x");
  EXPECT_EQ(render("{% macro m(n) %}{% if n %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(20) }}").size(), 31u);
  EXPECT_EQ(render("{{ 1" + repeat(" + 1", 5000) + " }}"), "5001");
}

TEST(JinjaLimits, nested_input_is_refused_not_followed) {
  Value deep("x");
  for (int i = 0; i < 150; ++i) deep = Value::list({deep});
  Dict variables;
  variables.set("x", mark_input(deep));
  EXPECT_THAT(render("{{ x }}", variables), HasSubstr("nested more than 100 levels deep"));
}

TEST(JinjaTemplate, one_template_renders_in_many_threads) {
  const auto parsed = Template::parse(
      "{% set ns = namespace(s='') %}{% for w in l %}{% set ns.s = ns.s ~ w %}{% endfor %}{{ ns.s|upper }}");
  ASSERT_TRUE(parsed);
  Dict variables;
  variables.set("l", mark_input(Value::list({Value("a"), Value("é"), Value("c")})));
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) result = join(parsed->render(variables).value_or(std::vector<Segment>{}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, testing::Each("AÉC"));
}

TEST(JinjaValue, dict_keeps_order_and_finds_equal_keys) {
  Dict dict;
  for (int i = 0; i < 40; ++i) dict.set("key" + std::to_string(i), i);
  dict.set(Value(1), "int");
  dict.set(Value(true), "bool");  // equal to 1: replaces
  dict.set("key3", "new");
  ASSERT_EQ(dict.size(), 41u);
  EXPECT_EQ(dict.entries()[3].value.as_text().bytes(), "new");
  ASSERT_NE(dict.find(Value(1.0)), nullptr);
  EXPECT_EQ(dict.find(Value(1.0))->as_text().bytes(), "bool");
  EXPECT_EQ(dict.find("key40"), nullptr);
}

}  // namespace
}  // namespace honeycrisp::text::jinja
