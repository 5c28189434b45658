// SPDX-License-Identifier: Apache-2.0
#include "config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "config/config.h"
#include "config/yaml_text.h"

namespace anyattn::config {
namespace {

Mark from_yaml(const YAML::Mark& mark) {
  return {static_cast<uint32_t>(std::max(mark.line, 0)) + 1, static_cast<uint32_t>(std::max(mark.column, 0)) + 1};
}

// Builds the tree from the parser's events. Limits hold while the file is read, not afterwards.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string file, const YamlLimits& limits) : file_(std::move(file)), limits_(limits) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      fail(file_, from_yaml(mark), "",
           "something follows the end of the document; a file holds one document and nothing after it");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    // The parser marks a value left out with the place of whatever comes next: its key is the better place.
    node.mark = !open_.empty() && open_.back().has_key ? open_.back().key.mark : from_yaml(mark);
    refuse_anchor(anchor, from_yaml(mark));
    if (wants_key()) fail(file_, from_yaml(mark), path(), "a key is missing before the colon");
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(file_, from_yaml(mark), path(), "aliases (*name) are not read; write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    refuse_anchor(anchor, from_yaml(mark));
    refuse_tag(tag, from_yaml(mark));
    refuse_control_characters(value, from_yaml(mark));
    if (wants_key()) {
      count(from_yaml(mark));
      open_.back().key = {value, from_yaml(mark)};
      open_.back().has_key = true;
      return;
    }
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.quoted = tag == "!";
    node.mark = from_yaml(mark);
    node.text = value;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMapping, mark, tag, anchor);
  }
  void OnMapEnd() override {
    refuse_duplicates(open_.back().node);
    close();
  }

  // Where the parser stands, for its own errors.
  std::string path() const {
    std::string text;
    for (const Open& level : open_) {
      if (level.node.kind == YamlNode::Kind::kList)
        text = join_path(text, level.node.items.size());
      else if (level.has_key)
        text = join_path(text, level.key.text);
    }
    return text;
  }

 private:
  struct Open {
    YamlNode node;
    YamlNode::Key key;
    bool has_key = false;
  };

  bool wants_key() const {
    return !open_.empty() && open_.back().node.kind == YamlNode::Kind::kMapping && !open_.back().has_key;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(anchor, from_yaml(mark));
    refuse_tag(tag, from_yaml(mark));
    if (wants_key()) fail(file_, from_yaml(mark), path(), "a list or mapping stands where a key is wanted; keys are text");
    if (open_.size() >= limits_.depth)
      fail(file_, from_yaml(mark), path(),
           fmt::format("nested deeper than {} levels, the most a file may have", limits_.depth));
    count(from_yaml(mark));
    Open level;
    level.node.kind = kind;
    level.node.mark = from_yaml(mark);
    open_.push_back(std::move(level));
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    attach(std::move(node));
  }

  void add(YamlNode node) {
    count(node.mark);
    attach(std::move(node));
  }

  void attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& level = open_.back();
    if (level.node.kind == YamlNode::Kind::kMapping) {
      level.node.keys.push_back(std::move(level.key));
      level.has_key = false;
    }
    level.node.items.push_back(std::move(node));
  }

  void count(Mark mark) {
    if (++nodes_ > limits_.nodes)
      fail(file_, mark, path(), fmt::format("more than {} keys and values, the most a file may have", limits_.nodes));
  }

  void refuse_anchor(YAML::anchor_t anchor, Mark mark) const {
    if (anchor != 0) fail(file_, mark, path(), "anchors (&name) are not read; write the value out where it is used");
  }

  // "?" is plain, "!" is quoted; anything else was written by hand.
  void refuse_tag(const std::string& tag, Mark mark) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    fail(file_, mark, path(), fmt::format("the tag {} is not read; write the value without a tag", quote(tag)));
  }

  void refuse_control_characters(const std::string& value, Mark mark) const {
    for (unsigned char c : value)
      if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        fail(file_, mark, path(), fmt::format("the control character 0x{:02x} stands in the text {}", c, quote(value)));
  }

  // Sorted, so that a file of 50,000 equal keys costs no 50,000^2.
  void refuse_duplicates(const YamlNode& node) const {
    std::vector<size_t> order(node.keys.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return node.keys[a].text < node.keys[b].text; });
    const YamlNode::Key* first = nullptr;
    const YamlNode::Key* second = nullptr;
    for (size_t i = 1; i < order.size(); ++i) {
      const YamlNode::Key& here = node.keys[order[i]];
      const bool earlier = !second || here.mark.line < second->mark.line ||
                           (here.mark.line == second->mark.line && here.mark.column < second->mark.column);
      if (node.keys[order[i - 1]].text != here.text || !earlier) continue;
      first = &node.keys[order[i - 1]];
      second = &here;
    }
    if (!second) return;
    std::string where = path();
    fail(file_, second->mark, join_path(where, second->text),
         fmt::format("the key is given twice, first in line {}; keep one of them", first->mark.line));
  }

  std::string file_;
  YamlLimits limits_;
  std::vector<Open> open_;
  YamlNode root_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  if (kind != Kind::kMapping) return nullptr;
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].text == key) return &items[i];
  return nullptr;
}

Document parse_yaml(std::string_view text, const std::string& file, const YamlLimits& limits) {
  if (text.size() > limits.bytes)
    throw ConfigError(fmt::format("{}: is larger than {} bytes, the most a file may have", file, limits.bytes));
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  refuse_bad_lines(text, file);
  // The parser takes a quoted text that nobody closed, unless a document's end mark follows.
  std::istringstream input(std::string(text) + "\n...\n");
  TreeBuilder builder(file, limits);
  try {
    YAML::Parser parser(input);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    std::string what = error.msg;
    if (what == "illegal document indicator in scalar") what = "a quoted text has no closing quote before the end of the file";
    fail(file, from_yaml(error.mark), builder.path(), "not YAML: " + what);
  }
  return {file, builder.take()};
}

Document read_yaml(const std::string& file, const YamlLimits& limits) {
  return parse_yaml(read_text_file(file, limits.bytes), file, limits);
}

}  // namespace anyattn::config
