#include "backend/metal/soft/scan/scanner.h"

#include "backend/metal/soft/abi.h"
#include "backend/metal/soft/scan/tokens.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace honeycrisp::backend::metal::soft {
namespace {

// What each attribute of a kernel parameter is called by the runtime, and the types it may have.
enum class Shape { kPosition, kIndex };  // one to three components; one component
struct BuiltIn {
  std::string_view attribute, enumerator;
  Shape shape;
};
constexpr BuiltIn kBuiltIns[] = {
    {"thread_position_in_grid", "kThreadPositionInGrid", Shape::kPosition},
    {"thread_position_in_threadgroup", "kThreadPositionInThreadgroup", Shape::kPosition},
    {"threadgroup_position_in_grid", "kThreadgroupPositionInGrid", Shape::kPosition},
    {"threads_per_threadgroup", "kThreadsPerThreadgroup", Shape::kPosition},
    {"threads_per_grid", "kThreadsPerGrid", Shape::kPosition},
    {"threadgroups_per_grid", "kThreadgroupsPerGrid", Shape::kPosition},
    {"thread_index_in_threadgroup", "kThreadIndexInThreadgroup", Shape::kIndex},
    {"thread_index_in_simdgroup", "kThreadIndexInSimdgroup", Shape::kIndex},
    {"simdgroup_index_in_threadgroup", "kSimdgroupIndexInThreadgroup", Shape::kIndex},
    {"simdgroups_per_threadgroup", "kSimdgroupsPerThreadgroup", Shape::kIndex},
    {"threads_per_simdgroup", "kThreadsPerSimdgroup", Shape::kIndex},
};
constexpr std::string_view kConstantTypes[] = {"bool", "char", "uchar", "short", "ushort", "int",
                                               "uint", "long", "ulong", "half",  "float"};

struct KernelParameter {
  std::string name, attribute, argument, enabled;  // e.g. "w", "buffer", "0", "kHasBias" or empty
  bool constant = false;
};
struct Kernel {
  std::string name;
  bool is_template = false;
  int line = 0;
  std::vector<KernelParameter> parameters;
};
struct Instance {
  std::string host_name, function, arguments;
  int line = 0;
};
struct Constant {
  std::string name, type;
  uint32_t index = 0;
};
struct Derived {
  std::string name, expression;
};
struct Edit {
  size_t at, length;
  std::string with;
};

/// `with` after the newlines that it replaces, so that lines keep their numbers.
std::string keep_lines(std::string with, std::string_view replaced) {
  return with + std::string(size_t(std::count(replaced.begin(), replaced.end(), '\n')), '\n');
}

class Scanner {
 public:
  Scanner(const std::string& text, const std::string& file, bool strict)
      : text_(text), strict_(strict), t_(text, file) {}

  Result<void> run() {
    int depth = 0;
    for (size_t i = 0; i < t_.size(); ++i) {
      if (t_[i] == "{" && !opens_namespace(i)) ++depth;
      if (t_[i] == "{" && opens_namespace(i)) ++namespaces_;
      if (t_[i] == "}") {
        if (depth > 0)
          --depth;
        else
          --namespaces_;
      }
      if (t_[i] == "threadgroup") {
        if (i > 0 && (t_[i - 1] == "[[" || t_[i - 1] == ",") && t_[i + 1] == "(")
          replace(i, i + 1, "soft_threadgroup");
        else if (depth > 0)
          HC_TRY(threadgroup_variable(i));
      }
      if (t_[i] == "constant" && depth == 0) HC_TRY(global_constant(i));
      if (t_[i] == "kernel" && depth == 0) HC_TRY(kernel(i));
    }
    for (const Instance& instance : instances_)
      if (!find(instance.function))
        return invalid("{}: no kernel template of this name is in the file", instance.function);
    std::set<std::string> names;
    for (const auto& [name, function, arguments, line] : instances()) {
      if (!names.insert(name).second) return invalid("line {}: two kernels have the name {}", line, name);
    }
    return {};
  }

  std::string edited() {
    std::string out = text_;
    std::sort(edits_.begin(), edits_.end(), [](const Edit& a, const Edit& b) { return a.at > b.at; });
    for (const Edit& e : edits_) out.replace(e.at, e.length, e.with);
    return out;
  }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<Derived>& derived() const { return derived_; }
  const Kernel* find(const std::string& name) const {
    for (const Kernel& k : kernels_)
      if (k.name == name) return &k;
    return nullptr;
  }
  /// Every kernel that a host can ask for.
  std::vector<Instance> instances() const {
    std::vector<Instance> all;
    for (const Kernel& k : kernels_)
      if (!k.is_template) all.push_back({k.name, k.name, "", k.line});
    all.insert(all.end(), instances_.begin(), instances_.end());
    return all;
  }

 private:
  bool opens_namespace(size_t i) const {
    return i > 0 && (t_[i - 1] == "namespace" || (i > 1 && t_[i - 2] == "namespace"));
  }
  void replace(size_t from, size_t to, std::string with) {  // tokens [from, to)
    const size_t begin = t_[from].at, end = t_[to - 1].at + t_[to - 1].text.size();
    edits_.push_back(
        {begin, end - begin, keep_lines(std::move(with), std::string_view(text_).substr(begin, end - begin))});
  }
  // Of tokens [from, to), comments left out. What stood together stays so: an operator may be two tokens.
  std::string source(size_t from, size_t to) const {
    std::string s;
    for (size_t i = from; i < to; ++i) {
      if (i != from && t_[i - 1].at + t_[i - 1].text.size() != t_[i].at) s += ' ';
      s += t_[i].text;
    }
    return s;
  }

  /// `threadgroup T name[n]...;` in a function: one variable for all threads of the threadgroup.
  Result<void> threadgroup_variable(size_t i) {
    if (i == 0 || !(t_[i - 1] == "{" || t_[i - 1] == "}" || t_[i - 1] == ";" || t_[i - 1] == ")")) return {};
    size_t end = i;
    bool pointer = false, several = false, initialised = false;
    for (int angle = 0, square = 0; end < t_.size() && !(t_[end] == ";"); ++end) {
      angle += t_[end] == "<" ? 1 : t_[end] == ">" ? -1 : 0;
      square += t_[end] == "[" ? 1 : t_[end] == "]" ? -1 : 0;
      pointer |= square == 0 && (t_[end] == "*" || t_[end] == "&");
      several |= t_[end] == "," && angle == 0 && square == 0;
      initialised |= square == 0 && (t_[end] == "=" || t_[end] == "{");
    }
    if (pointer) return {};
    if (several) return invalid("{}: declare each threadgroup variable by itself", t_.place(i));
    if (initialised) return invalid("{}: a threadgroup variable has no initialiser", t_.place(i));
    size_t dimensions = i + 1;
    while (dimensions < end && !(t_[dimensions] == "[" || t_[dimensions] == "[[")) ++dimensions;
    const size_t name = dimensions - 1;
    if (name <= i + 1 || !t_.identifier(name))
      return invalid("{}: a threadgroup variable needs a type and a name", t_.place(i));
    const std::string type = source(i + 1, name), dims = source(dimensions, end), id(t_[name].text);
    if (strict_) {
      replace(i, end,
              "threadgroup " + type + " (&" + id + ")" + dims + " = *(threadgroup " + type + " (*)" + dims + ")0");
    } else {
      if (slots_ == kMaxThreadgroupVariables)
        return invalid("{}: more than {} threadgroup variables in one file", t_.place(i), kMaxThreadgroupVariables);
      replace(i, end,
              "auto& " + id + " = ::honeycrisp::backend::metal::soft::threadgroup_variable<" + type + " " + dims +
                  ">(" + std::to_string(slots_++) + ")");
    }
    return {};
  }

  /// A global `constant`: a function constant, one computed from such, or neither.
  Result<void> global_constant(size_t i) {
    size_t end = i;
    while (end < t_.size() &&
           !(t_[end] == ";" || t_[end] == "=" || t_[end] == "(" || t_[end] == "{" || t_[end] == "[["))
      ++end;
    if (t_[end] == "[[" && t_[end + 1] == "function_constant") return function_constant(i, end);
    if (!(t_[end] == "=" || t_[end] == "{") || !t_.identifier(end - 1)) return {};
    size_t semicolon = end;
    while (semicolon < t_.size() && !(t_[semicolon] == ";")) ++semicolon;
    const bool depends = [&] {
      for (size_t k = end; k < semicolon; ++k)
        if (specialised_.contains(std::string(t_[k].text))) return true;
      return false;
    }();
    if (!depends) return {};
    const std::string name(t_[end - 1].text);
    if (t_[end] == "{")
      return invalid("{}: write {} = ..., because it depends on a function constant", t_.place(i), name);
    for (size_t k = i; k < end; ++k)
      if (t_[k] == "constexpr")
        return invalid("{}: {} depends on a function constant and cannot be constexpr", t_.place(k), name);
    specialised_.insert(name);
    derived_.push_back({name, source(end + 1, semicolon)});
    if (!strict_) {
      replace(i, i + 1, "SOFT_FUNCTION_CONSTANT");
      replace(end, semicolon, "");
    }
    return {};
  }

  Result<void> function_constant(size_t i, size_t attribute) {
    const std::string name(t_[attribute - 1].text), type = source(i + 1, attribute - 1);
    std::string scalar = type;
    if (!scalar.empty() && scalar.back() >= '2' && scalar.back() <= '4') scalar.pop_back();
    if (std::find(std::begin(kConstantTypes), std::end(kConstantTypes), scalar) == std::end(kConstantTypes))
      return invalid("{}: function constant {} has type {}; it must be a scalar or a vector", t_.place(i), name, type);
    const size_t close = t_.closing(attribute + 2);
    const std::string index = source(attribute + 3, close);
    if (index.empty() || index.find_first_not_of("0123456789") != std::string::npos || index.size() > 5 ||
        std::stoul(index) > 65535)
      return invalid("{}: function_constant({}) needs an index from 0 to 65535", t_.place(i), index);
    for (const Constant& c : constants_)
      if (c.index == std::stoul(index))
        return invalid("{}: function constants {} and {} share the index {}", t_.place(i), c.name, name, index);
    size_t semicolon = attribute;
    while (semicolon < t_.size() && !(t_[semicolon] == ";")) ++semicolon;
    if (semicolon != close + 2) return invalid("{}: a function constant has no initialiser", t_.place(i));
    constants_.push_back({name, type, uint32_t(std::stoul(index))});
    specialised_.insert(name);
    if (strict_)
      replace(attribute, semicolon, "= 0");
    else
      replace(i, i + 1, "SOFT_FUNCTION_CONSTANT bool soft_defined_" + name + "; SOFT_FUNCTION_CONSTANT");
    return {};
  }

  Result<void> kernel(size_t i) {
    if (i > 0 && t_[i - 1] == "[[") i += 1;  // [[kernel]]
    size_t open = i + 1;
    while (open < t_.size() && !(t_[open] == "(" || t_[open] == ";"))
      open = t_[open] == "decltype" ? t_.closing(open + 1) + 1 : open + 1;
    size_t start = i;
    while (start > 0 && !(t_[start - 1] == ";" || t_[start - 1] == "}" || t_[start - 1] == "{")) --start;
    if (t_[start] == "template" && t_[start + 1] == "[[") return instantiation(start, open);
    const std::string name(t_[open - 1].text);
    if (!(t_[open] == "(") || !t_.identifier(open - 1))
      return invalid("{}: a kernel function was expected", t_.place(i));
    if (!(t_[open - 2] == "void")) return invalid("{}: kernel {} must return void", t_.place(open - 1), name);
    Kernel k{name, t_[start] == "template", t_.line(open - 1), {}};
    const size_t close = t_.closing(open);
    std::set<std::string> used;
    size_t components = 0;
    for (size_t p = open + 1; p < close;) {
      size_t end = p;
      int depth = 0;
      for (; end < close; ++end) {
        const Token& x = t_[end];
        depth += x == "(" || x == "<" || x == "{" || x == "[" ? 1 : x == "[[" ? 2 : 0;
        depth -= x == ")" || x == ">" || x == "}" || x == "]" ? 1 : x == "]]" ? 2 : 0;
        if (x == "," && depth == 0) break;
      }
      HC_ASSIGN(KernelParameter parameter, kernel_parameter(name, p, end, components));
      if (!parameter.argument.empty() && !used.insert(parameter.attribute + "(" + parameter.argument + ")").second)
        return invalid("{}: kernel {} uses {}({}) twice", t_.place(p), name, parameter.attribute, parameter.argument);
      k.parameters.push_back(std::move(parameter));
      p = end + 1;
    }
    kernels_.push_back(std::move(k));
    return {};
  }

  Result<KernelParameter> kernel_parameter(const std::string& kernel, size_t from, size_t to, size_t& components) {
    KernelParameter p;
    size_t name = to;
    std::vector<std::array<std::string, 2>> attributes;  // name, argument
    for (size_t i = from; i < to; ++i) {
      if (!(t_[i] == "[[")) continue;
      if (name == to) name = i - 1;
      for (++i; i < to && !(t_[i] == "]]"); ++i) {
        if (!t_.identifier(i)) continue;
        attributes.push_back({std::string(t_[i].text), ""});
        if (t_[i + 1] == "(") {
          const size_t close = t_.closing(i + 1);
          attributes.back()[1] = source(i + 2, close);
          i = close;
        }
      }
    }
    if (attributes.empty())
      return invalid("{}: a parameter of kernel {} has no attribute: {}", t_.place(from), kernel, source(from, to));
    p.name = std::string(t_[name].text);
    bool pointer = false, reference = false;
    std::set<std::string> words;
    for (size_t i = from; i < name; ++i) {
      pointer |= t_[i] == "*";
      reference |= t_[i] == "&";
      words.emplace(t_[i].text);
    }
    p.constant = words.contains("constant");
    const std::string type = source(from, name);
    for (const auto& [attribute, argument] : attributes) {
      if (attribute == "function_constant") {
        if (!specialised_.contains(argument))
          return invalid("{}: {} depends on {}, which is no function constant of this file", t_.place(from), p.name,
                         argument);
        for (const Constant& c : constants_)
          if (c.name == argument && c.type != "bool")
            return invalid("{}: {} depends on {}, which must be bool", t_.place(from), p.name, argument);
        p.enabled = argument;
        continue;
      }
      if (!p.attribute.empty())
        return invalid("{}: {} has two attributes, {} and {}", t_.place(from), p.name, p.attribute, attribute);
      p.attribute = attribute;
      p.argument = argument;
      if (attribute == "buffer" || attribute == "threadgroup") {
        const uint32_t limit = attribute == "buffer" ? kMaxBuffers : kMaxThreadgroupArguments;
        if (argument.empty() || argument.find_first_not_of("0123456789") != std::string::npos || argument.size() > 3 ||
            std::stoul(argument) >= limit)
          return invalid("{}: {}({}): the index goes from 0 to {}", t_.place(from), attribute, argument, limit - 1);
        if (pointer == reference)
          return invalid("{}: {} is {}({}) and must be a pointer or a reference, not {}", t_.place(from), p.name,
                         attribute, argument, type);
        const bool in_device = words.contains("device") || words.contains("constant");
        if (attribute == "buffer" ? !in_device : !words.contains("threadgroup"))
          return invalid("{}: {} is {}({}) and must point to {} memory", t_.place(from), p.name, attribute, argument,
                         attribute == "buffer" ? "device or constant" : "threadgroup");
        continue;
      }
      const auto* built_in = std::find_if(std::begin(kBuiltIns), std::end(kBuiltIns),
                                          [&](const BuiltIn& b) { return b.attribute == attribute; });
      if (built_in == std::end(kBuiltIns))
        return invalid("{}: the attribute {} of {} is not one that compute kernels here may use", t_.place(from),
                       attribute, p.name);
      std::string scalar = type;
      size_t count = 1;
      if (!scalar.empty() && (scalar.back() == '2' || scalar.back() == '3')) {
        count = size_t(scalar.back() - '0');
        scalar.pop_back();
      }
      const bool position = built_in->shape == Shape::kPosition;
      if ((scalar != "uint" && scalar != "ushort") || (count > 1 && !position))
        return invalid("{}: {} is {} and must be {}, not {}", t_.place(from), p.name, attribute,
                       position ? "ushort or uint, or a vector of two or three" : "ushort or uint", type);
      if (position && components != 0 && components != count)
        return invalid("{}: {} has {} component(s), but another position or size of kernel {} has {}", t_.place(from),
                       p.name, count, kernel, components);
      if (position) components = count;
    }
    return p;
  }

  /// template [[host_name("x")]] kernel decltype(f<...>) f<...>;
  Result<void> instantiation(size_t start, size_t end) {
    const size_t close = t_.closing(start + 1);
    std::string host_name;
    for (size_t i = start; i < close; ++i)
      if (t_[i] == "host_name") host_name = std::string(t_[i + 2].text);
    if (host_name.size() < 3) return invalid("{}: an instantiation needs [[host_name(\"...\")]]", t_.place(start));
    if (!(t_[end - 1] == ">")) return invalid("{}: an instantiation needs template arguments", t_.place(start));
    size_t angle = end;
    int depth = 0;
    do {
      --angle;
      depth += t_[angle] == ">" ? 1 : t_[angle] == "<" ? -1 : 0;
    } while (depth > 0 && angle > start);
    // clang does not take an attribute here, and none of the compilers needs it
    replace(start + 1, close + 1, "");
    instances_.push_back({host_name.substr(1, host_name.size() - 2), std::string(t_[angle - 1].text),
                          source(angle, end), t_.line(start)});
    return {};
  }

  const std::string& text_;
  const bool strict_;
  Tokens t_;
  int namespaces_ = 0;
  uint32_t slots_ = 0;
  std::vector<Edit> edits_;
  std::vector<Kernel> kernels_;
  std::vector<Instance> instances_;
  std::vector<Constant> constants_;
  std::vector<Derived> derived_;
  std::set<std::string> specialised_;  // names of function constants and of what depends on them
};

std::string enumerator(const KernelParameter& p) {
  if (p.attribute == "buffer") return p.constant ? "kConstantBuffer" : "kBuffer";
  if (p.attribute == "threadgroup") return "kThreadgroup";
  for (const BuiltIn& b : kBuiltIns)
    if (b.attribute == p.attribute) return std::string(b.enumerator);
  return "";
}

Result<std::string> read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  if (!in || !(out << in.rdbuf())) return Fail(ErrorCode::kIo, file.string() + ": cannot be read");
  return out.str();
}

Result<void> expand(const std::filesystem::path& file, std::set<std::filesystem::path>& seen, std::string& out) {
  HC_ASSIGN(const std::string text, read_file(file));
  out += "#line 1 \"" + file.string() + "\"\n";
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const size_t at = line.find_first_not_of(" \t");
    const size_t quote = line.find('"');
    if (at != std::string::npos && line.compare(at, 8, "#include") == 0 && quote != std::string::npos) {
      const std::string name = line.substr(quote + 1, line.find('"', quote + 1) - quote - 1);
      const std::filesystem::path included = (file.parent_path() / name).lexically_normal();
      if (seen.insert(included).second) HC_TRY(expand(included, seen, out));
      out += "#line " + std::to_string(number + 1) + " \"" + file.string() + "\"\n";
    } else if (at != std::string::npos && line.compare(at, 12, "#pragma once") == 0) {
      out += "\n";  // done by the expansion; a compiler would warn of it in a main file
    } else {
      out += line + "\n";
    }
  }
  return {};
}

}  // namespace

Result<std::string> expand_includes(const std::filesystem::path& file) {
  std::string out;
  std::set<std::filesystem::path> seen{file.lexically_normal()};
  HC_TRY(expand(file, seen, out));
  return out;
}

std::string unit_symbol(const std::filesystem::path& file) {
  std::string s = file.stem().string();
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return s;
}

Result<std::string> strict_unit(const std::string& text, const std::string& file) {
  Scanner scanner(text, file, true);
  HC_TRY(scanner.run());
  return "#include <metal_stdlib>\n#line 1 \"" + file + "\"\n" + scanner.edited();
}

Result<std::string> host_unit(const std::string& text, const std::string& file, const std::string& symbol) {
  Scanner scanner(text, file, false);
  HC_TRY(scanner.run());
  // An unnamed namespace: two files of one module may have helpers of the same name.
  std::ostringstream out;
  out << "#include \"soft/register.h\"\n#include <metal_stdlib>\nnamespace {\n#line 1 \"" << file << "\"\n"
      << scanner.edited() << "\n#line 1 \"" << symbol << " (generated)\"\n"
      << "namespace soft_registration {\nusing namespace ::honeycrisp::backend::metal::soft;\n";
  const std::vector<Instance> instances = scanner.instances();
  for (size_t i = 0; i < instances.size(); ++i) {
    const Kernel& k = *scanner.find(instances[i].function);
    out << "using thunk_" << i << " = Thunk<&" << k.name << instances[i].arguments;
    for (const KernelParameter& p : k.parameters)
      out << ", Bound{Attribute::" << enumerator(p) << ", " << (p.argument.empty() ? "0" : p.argument) << "}";
    out << ">;\nconstexpr auto parameters_" << i << " = thunk_" << i << "::table(";
    for (size_t j = 0; j < k.parameters.size(); ++j) {
      const KernelParameter& p = k.parameters[j];
      out << (j ? ", " : "") << "Extra{\"" << p.name << "\", "
          << (p.enabled.empty() ? "nullptr" : "[]() -> const bool* { return &" + p.enabled + "; }") << "}";
    }
    out << ");\n";
  }
  if (!instances.empty()) {
    out << "constexpr KernelInfo kernels[] = {\n";
    for (size_t i = 0; i < instances.size(); ++i)
      out << "{\"" << instances[i].host_name << "\", &thunk_" << i << "::call, parameters_" << i << ".all, "
          << scanner.find(instances[i].function)->parameters.size() << ", " << scanner.find(instances[i].function)->line
          << "},\n";
    out << "};\n";
  }
  const size_t constants = scanner.constants().size() + scanner.derived().size();
  if (constants != 0) {
    out << "constexpr FunctionConstant constants[] = {\n";
    for (const Constant& c : scanner.constants())
      out << "{\"" << c.name << "\", " << c.index << ", sizeof " << c.name << ", []() -> void* { return &" << c.name
          << "; }, []() -> bool* { return &soft_defined_" << c.name << "; }},\n";
    for (const Derived& d : scanner.derived())
      out << "{\"" << d.name << "\", kDerivedConstant, sizeof " << d.name << ", []() -> void* { return &" << d.name
          << "; }, nullptr},\n";
    out << "};\n";
  }
  out << "__attribute__((no_sanitize(\"thread\"))) void derive() {\n";
  for (const Derived& d : scanner.derived()) out << d.name << " = (" << d.expression << ");\n";
  out << "}\n}\n}\nextern \"C\" {\nextern const honeycrisp::backend::metal::soft::Unit soft_unit_" << symbol
      << ";\nconst honeycrisp::backend::metal::soft::Unit soft_unit_" << symbol << " = {\"" << file << "\", "
      << (instances.empty() ? "nullptr" : "soft_registration::kernels") << ", " << instances.size() << ", "
      << (constants == 0 ? "nullptr" : "soft_registration::constants") << ", " << constants
      << ", &soft_registration::derive};\n}\n";
  return out.str();
}

}  // namespace honeycrisp::backend::metal::soft
