#include "golden/model_prompts.h"

#include <boost/json/src.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace honeycrisp::testing {
namespace json = boost::json;

std::vector<GoldenPrompt> read_prompts(const std::string& golden) {
  std::ifstream in(std::string(HONEYCRISP_TEST_DATA) + "/models/" + golden + ".json");
  std::stringstream text;
  text << in.rdbuf();
  std::vector<GoldenPrompt> prompts;
  const json::value parsed = json::parse(text.str());
  for (const json::value& p : parsed.as_array())
    prompts.push_back({json::value_to<std::vector<int32_t>>(p.at("tokens")),
                       json::value_to<std::vector<int32_t>>(p.at("greedy")),
                       json::value_to<std::vector<double>>(p.at("logsumexp")),
                       json::value_to<std::vector<std::vector<int32_t>>>(p.at("top_ids")),
                       json::value_to<std::vector<std::vector<double>>>(p.at("top_logits"))});
  return prompts;
}

std::string model_path(const GoldenModel& model) {
  const char* folder = std::getenv("HONEYCRISP_MODEL_DIR");
  if (folder == nullptr) return "";
  std::string path = std::string(folder) + "/" + model.file;
  return std::filesystem::exists(path) ? path : "";
}

std::string how_to_get(const GoldenModel& model) {
  return std::string("set HONEYCRISP_MODEL_DIR to a folder with ") + model.file +
         " (scripts/test does; honeycrisp pull fetches it)";
}

}  // namespace honeycrisp::testing
