// SPDX-License-Identifier: Apache-2.0
// Nearest words, terminal facts, tables, and cards on the PCI bus.
#include <doctest/doctest.h>

#include <stdexcept>

#include "common/nearest.h"
#include "common/pci.h"
#include "common/table.h"
#include "common/terminal.h"
#include "temp_dir.h"

using namespace anyattn::tools;

TEST_CASE("edit_distance_counts_single_changes_and_swaps") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("list", "list") == 0);
  CHECK(edit_distance("lsit", "list") == 1);
  CHECK(edit_distance("FLASH_ATN", "FLASH_ATTN") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("nearest_finds_a_typo_and_refuses_a_stranger") {
  const std::vector<std::string> verbs = {"list", "explain", "run", "generate", "check", "bench", "config", "doctor"};
  CHECK(nearest("lst", verbs) == "list");
  CHECK(nearest("genrate", verbs) == "generate");
  CHECK(nearest("explian", verbs) == "explain");
  CHECK(nearest("frobnicate", verbs) == "");
  CHECK(nearest("x", verbs) == "");
  CHECK(nearest("list", {}) == "");
}

TEST_CASE("cards_are_found_by_vendor_and_class_whatever_else_is_on_the_bus") {
  const anyattn::testing::TempDir bus;
  const auto device = [&](const std::string& address, const char* vendor, const char* code) {
    std::filesystem::create_directory(bus / address);
    bus.write(address + "/vendor", std::string(vendor) + "\n");
    bus.write(address + "/class", std::string(code) + "\n");
  };
  device("0000:03:00.0", "0x8086", "0x038000");  // a data-centre GPU
  device("0000:00:02.0", "0x8086", "0x030000");
  device("0000:00:1f.0", "0x8086", "0x060100");  // a bridge
  device("0000:04:00.0", "0x10de", "0x030200");
  std::filesystem::create_directory(bus / "0000:05:00.0");  // says nothing of itself
  CHECK(cards_of(kPciIntel, bus.path()) == std::vector<std::string>{"0000:00:02.0", "0000:03:00.0"});
  CHECK(cards_of(0x10de, bus.path()) == std::vector<std::string>{"0000:04:00.0"});
  CHECK(cards_of(kPciIntel, bus / "nowhere").empty());
}

TEST_CASE("terminal_colours_only_where_a_person_looks") {
  CHECK(terminal_from(true, 80, nullptr, "xterm", nullptr).colours);
  CHECK(terminal_from(true, 80, "", "xterm", nullptr).colours);  // NO_COLOR counts when it is not empty
  CHECK_FALSE(terminal_from(true, 80, "1", "xterm", nullptr).colours);
  CHECK_FALSE(terminal_from(true, 80, nullptr, "dumb", nullptr).colours);
  CHECK_FALSE(terminal_from(false, 80, nullptr, "xterm", nullptr).colours);
  CHECK_FALSE(terminal_from(false, 80, nullptr, "xterm", nullptr).interactive);
  CHECK(terminal_from(true, 80, "1", "xterm", nullptr).interactive);
}

TEST_CASE("terminal_width_follows_columns_then_the_window") {
  CHECK(terminal_from(true, 120, nullptr, "xterm", nullptr).columns == 120);
  CHECK(terminal_from(true, 120, nullptr, "xterm", "72").columns == 72);
  CHECK(terminal_from(false, 0, nullptr, nullptr, "72").columns == 72);
  CHECK(terminal_from(false, 0, nullptr, nullptr, nullptr).columns == 0);
  CHECK(terminal_from(true, 120, nullptr, "xterm", "wide").columns == 120);
  CHECK(terminal_from(true, 120, nullptr, "xterm", "-3").columns == 120);
}

TEST_CASE("paint_leaves_text_alone_without_colours") {
  Terminal terminal;
  CHECK(terminal.paint("ok", Colour::kGreen) == "ok");
  terminal.colours = true;
  CHECK(terminal.paint("ok", Colour::kGreen) == "\x1b[32mok\x1b[0m");
  CHECK(display_width(terminal.paint("ok", Colour::kGreen)) == 2);
  CHECK(display_width("größe") == 5);
}

TEST_CASE("table_lines_up_and_leaves_no_trailing_blank") {
  Table table({{"name"}, {"bytes", Align::kRight}, {"note"}});
  CHECK(table.render({}) == "");
  table.add({"CPU_ATTN", "8", "ok"});
  table.add({"X", "1024"});
  CHECK(table.render({}) ==
        "name      bytes  note\n"
        "CPU_ATTN      8  ok\n"
        "X          1024\n");
  CHECK(table.render({}, 2).substr(0, 6) == "  name");
  CHECK_THROWS_AS(table.add({"1", "2", "3", "4"}), std::logic_error);
}

TEST_CASE("table_folds_the_widest_column_to_the_terminal") {
  Terminal terminal;
  terminal.columns = 30;
  Table table({{"name"}, {"reason"}});
  table.add({"ACME", "head_size 260 is asked for, multiples of 8 up to 256 are allowed"});
  CHECK(table.render(terminal) ==
        "name  reason\n"
        "ACME  head_size 260 is asked\n"
        "      for, multiples of 8 up\n"
        "      to 256 are allowed\n");
}

TEST_CASE("table_shows_control_characters_of_strangers_as_question_marks") {
  Table table({{"reason"}});
  table.add({"a\x1b[2Jb\tc"});
  CHECK(table.render({}) == "reason\na?[2Jb?c\n");
}

TEST_CASE("fold_cuts_a_long_word_and_keeps_lines") {
  CHECK(fold("abcdef", 4) == std::vector<std::string>{"abcd", "ef"});
  CHECK(fold("ab cd ef", 5) == std::vector<std::string>{"ab cd", "ef"});
  CHECK(fold("/opt/plugins/acme.so", 16) == std::vector<std::string>{"/opt/plugins/", "acme.so"});
  CHECK(fold("/x/a_long_name.so", 12) == std::vector<std::string>{"/x/a_long_na", "me.so"});
  CHECK(fold("a\nb", 10) == std::vector<std::string>{"a", "b"});
  CHECK(fold("", 10) == std::vector<std::string>{""});
}
