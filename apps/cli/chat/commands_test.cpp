#include "cli/chat/commands.h"

#include <gtest/gtest.h>

namespace honeycrisp::cli {
namespace {

TEST(ChatLine, MessageIsKept) {
  const ParsedLine line = parse_chat_line("what is 1/2?");
  EXPECT_FALSE(line.command || line.unknown_command);
  EXPECT_EQ(line.text, "what is 1/2?");
}

TEST(ChatLine, EveryCommandIsFoundWithItsArgument) {
  for (const ChatCommandInfo& info : chat_commands()) {
    const ParsedLine line = parse_chat_line(std::string(info.name) + "  an argument ");
    EXPECT_EQ(line.command, info.command);
    EXPECT_EQ(line.text, "an argument");
    EXPECT_NE(chat_help().find(info.name), std::string::npos);
  }
}

TEST(ChatLine, UnknownCommandIsNoMessage) {
  const ParsedLine line = parse_chat_line("/exits now");
  EXPECT_TRUE(line.unknown_command);
  EXPECT_EQ(line.text, "/exits");
}

TEST(ChatLine, TwoSlashesBeginAMessage) {
  const ParsedLine line = parse_chat_line("//help");
  EXPECT_FALSE(line.command || line.unknown_command);
  EXPECT_EQ(line.text, "/help");
}

TEST(MessageAssembler, OneLineIsOneMessage) {
  MessageAssembler assembler;
  EXPECT_EQ(assembler.add("hello"), "hello");
  EXPECT_EQ(assembler.add(""), "");
  EXPECT_FALSE(assembler.in_progress());
}

TEST(MessageAssembler, BackslashGoesOnInTheNextLine) {
  MessageAssembler assembler;
  EXPECT_EQ(assembler.add("one\\"), std::nullopt);
  EXPECT_TRUE(assembler.in_progress());
  EXPECT_EQ(assembler.add("two"), "one\ntwo");
}

TEST(MessageAssembler, BlockKeepsLinesAsTheyAre) {
  MessageAssembler assembler;
  EXPECT_EQ(assembler.add("\"\"\"first"), std::nullopt);
  EXPECT_EQ(assembler.add("/not a command\\"), std::nullopt);
  EXPECT_EQ(assembler.add(""), std::nullopt);
  EXPECT_EQ(assembler.add("\"\"\""), "first\n/not a command\\\n");
}

TEST(MessageAssembler, BlockOnOneLine) {
  MessageAssembler assembler;
  EXPECT_EQ(assembler.add("\"\"\"all of it\"\"\""), "all of it");
}

TEST(MessageAssembler, ResetForgetsWhatHadBegun) {
  MessageAssembler assembler;
  assembler.add("\"\"\"");
  assembler.reset();
  EXPECT_EQ(assembler.add("new"), "new");
}

}  // namespace
}  // namespace honeycrisp::cli
