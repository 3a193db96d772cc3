#include "golden/model_prompts.h"

#include <algorithm>
#include <boost/json/src.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace honeycrisp::testing {
namespace json = boost::json;
namespace {

double log_sum_exp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float v : logits) sum += std::exp(double(v) - largest);
  return largest + std::log(sum);
}

}  // namespace

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

double divergence(const GoldenPrompt& golden, size_t position, std::span<const float> logits) {
  const double ours = log_sum_exp(logits);
  double kl = 0, p_rest = 1, q_rest = 1;
  for (size_t i = 0; i < golden.top_ids[position].size(); ++i) {
    const double log_p = golden.top_logits[position][i] - golden.logsumexp[position];
    const double log_q = double(logits[size_t(golden.top_ids[position][i])]) - ours;
    kl += std::exp(log_p) * (log_p - log_q);
    p_rest -= std::exp(log_p);
    q_rest -= std::exp(log_q);
  }
  if (p_rest > 1e-9 && q_rest > 1e-9) kl += p_rest * std::log(p_rest / q_rest);
  return kl;
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
