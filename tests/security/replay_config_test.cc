// SPDX-License-Identifier: Apache-2.0
// Replays the fuzz entry over the corpus, our own files, every cut of them and seeded mutations. Under a sanitizer it finds more.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& text) {
  CHECK(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size()) == 0);
}

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const char* folder : {"/tests/security/corpus_config", "/config", "/config/examples"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(ANYATTN_SOURCE_DIR) + folder)) {
      if (entry.path().extension() != ".yaml") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  return texts;
}

}  // namespace

TEST_CASE("config_files_of_the_corpus_are_read_or_refused") {
  const std::vector<std::string> texts = corpus();
  CHECK(texts.size() >= 18);
  for (const std::string& text : texts) run(text);
}

TEST_CASE("config_files_cut_anywhere_are_read_or_refused") {
  for (const std::string& text : corpus())
    for (size_t size = 0; size < text.size() && size < 1500; ++size) run(text.substr(0, size));
}

TEST_CASE("config_files_with_changed_bytes_are_read_or_refused") {
  const std::vector<std::string> texts = corpus();
  std::mt19937 random(20);
  const std::string spice = "{}[]:-?&*!|>%@`\"'#,\n\t ~0\\\x01\x80\xff";
  for (int i = 0; i < 3000; ++i) {
    std::string text = texts[random() % texts.size()].substr(0, 4000);
    for (uint32_t change = random() % 8 + 1; change > 0 && !text.empty(); --change) {
      const size_t at = random() % text.size();
      const char c = spice[random() % spice.size()];
      switch (random() % 3) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, std::string(random() % 4 + 1, c));
          break;
        default:
          text.erase(at, random() % 8 + 1);
      }
    }
    run(text);
  }
}
