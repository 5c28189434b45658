// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

#include <string>
#include <vector>

#include "anyattn/conformance/case.h"
#include "contract.h"

namespace anyattn::conformance {
namespace {

std::vector<const char*> dtypes_of(Dtypes dtypes) {
  switch (dtypes) {
    case Dtypes::kFloat32:
      return {"float32"};
    case Dtypes::kHalves:
      return {"float16", "bfloat16"};
    case Dtypes::kAll:
      return {"float32", "float16", "bfloat16"};
  }
  return {};
}

std::vector<std::string> values_of(const char* values) {
  std::vector<std::string> parts{""};
  for (const char* at = values ? values : ""; *at; ++at) {
    if (*at == '|') {
      parts.emplace_back();
    } else {
      parts.back() += *at;
    }
  }
  return parts;
}

std::string with_value(std::string text, const std::string& value) {
  for (size_t at = 0; (at = text.find('@', at)) != std::string::npos; at += value.size()) text.replace(at, 1, value);
  return text;
}

// Spaces of a value read badly in a name, and so does nothing at all.
std::string as_name(std::string value) {
  if (value.empty()) return "plain";
  for (char& letter : value) {
    if (letter == ' ') letter = '_';
  }
  return value;
}

void spread(const Line& line, std::vector<Case>* cases) {
  const std::string text = line.text;
  const size_t kind_end = text.find(' ');
  for (const std::string& value : values_of(line.values)) {
    for (const char* dtype : dtypes_of(line.dtypes)) {
      const std::string whole =
          text.substr(0, kind_end) + " " + dtype + (kind_end == std::string::npos ? "" : text.substr(kind_end));
      Case c = parse_case(with_value(whole, value));
      c.name = with_value(line.name, as_name(value)) + "/" + dtype;
      cases->push_back(std::move(c));
    }
  }
}

}  // namespace

std::vector<Case> all_cases(Grid grid, uint64_t truth_seed) {
  std::vector<Case> cases;
  for (const std::string& rule : contract_rules()) {
    Case c = parse_case("contract float32 check=" + rule);
    c.name = "contract/" + rule;
    cases.push_back(std::move(c));
  }
  for (const auto lines : {kFeatureLines, kBugLines, kMeaningLines, kPrefixLines, kShapeLines, kFormatLines, kMlaLines}) {
    for (const Line& line : lines) {
      if (line.size == Size::kSmall || grid == Grid::kFull) spread(line, &cases);
    }
  }
  for (Case& c : truth_cases(truth_seed)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace anyattn::conformance
