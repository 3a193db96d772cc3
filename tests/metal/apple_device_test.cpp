// backend/metal/apple/device.mm, executed: its Objective-C++ against the look-alike framework, whose Metal is the
// software device. What Apple's own framework does remains unseen.
#include "backend/metal/apple/archive_file.h"
#include "backend/metal/apple/device.h"
#include "framework/framework.h"
#include "support/temporary_folder.h"
#include <honeycrisp/log.h>

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace honeycrisp::backend::metal {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint32_t kCount = 96;

class AppleDevice : public ::testing::Test {
 public:
  void SetUp() override { make({.check = true}); }
  void TearDown() override {
    device.reset();
    soft.reset();
    framework::set_system({});
    EXPECT_EQ(framework::live_objects(), 0);
    EXPECT_EQ(framework::resident_allocations(), 0);
  }
  void make(const soft::DeviceOptions& options) {
    device.reset();
    soft = soft::Device::create(options).value();
    framework::set_system(
        {.device = soft,
         .libraries = {soft->open_library("test_kernels").value(), soft->open_library("backend_kernels").value()}});
    device = system_device().value();
  }
  std::shared_ptr<Buffer> floats(float value) {
    auto b = device->allocate(kCount * 4, "floats").value();
    std::fill_n(reinterpret_cast<float*>(b->contents()), kCount, value);
    return b;
  }
  static float first(const std::shared_ptr<Buffer>& b) { return *reinterpret_cast<float*>(b->contents()); }
  std::shared_ptr<const Pipeline> add() { return device->pipeline("rms_norm", "add", {}).value(); }
  /// x += y
  static void encode_add(Encoder& e, const Pipeline& p, const std::shared_ptr<Buffer>& x,
                         const std::shared_ptr<Buffer>& y) {
    e.set_pipeline(p);
    e.set_buffer(0, {x.get(), 0, x->bytes()});
    e.set_buffer(1, {y.get(), 0, y->bytes()});
    e.set_bytes(2, std::as_bytes(std::span(&kCount, 1)));
    e.dispatch({3}, {32});
  }

  std::shared_ptr<soft::Device> soft;
  std::shared_ptr<Device> device;
};

TEST_F(AppleDevice, is_made_once_and_says_what_it_is) {
  EXPECT_EQ(system_device().value(), device);
  EXPECT_EQ(device->describe(), "look-alike, buffers of at most 4096 MiB, 3072 MiB recommended");
  EXPECT_EQ(device->most_buffer_bytes(), uint64_t{1} << 32);
  EXPECT_EQ(device->recommended_memory_bytes(), uint64_t{3} << 30);
  EXPECT_GT(framework::live_objects(), 0);  // none after each test
}

TEST_F(AppleDevice, systems_that_will_not_do_are_told) {
  device.reset();
  framework::set_system({});
  EXPECT_EQ(system_device().error().message, "this system has no Metal device");
  framework::set_system({.device = soft, .apple7 = false});
  EXPECT_EQ(system_device().error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(system_device().error().message, "look-alike: the kernels need a GPU of Apple's family 7 (M1) or later");
}

TEST_F(AppleDevice, dispatches_run_in_order_with_a_barrier_and_without_one_are_reported) {
  for (const bool barrier : {true, false}) {
    make({.check = true});
    const auto pipeline = add();
    EXPECT_EQ(pipeline->name(), "add");
    EXPECT_EQ(pipeline->most_threads(), 1024u);
    const auto x = floats(1), y = floats(2);
    auto commands = device->command_buffer("two adds").value();
    encode_add(commands->encoder(), *pipeline, x, y);
    if (barrier) commands->encoder().barrier();
    encode_add(commands->encoder(), *pipeline, y, x);
    commands->commit();
    ASSERT_TRUE(commands->wait());
    EXPECT_GT(commands->gpu_seconds(), 0);
    const auto reports = soft->reports();
    ASSERT_EQ(reports.empty(), barrier);
    if (!barrier) {
      EXPECT_EQ(reports.front().fault, soft::Fault::kMissingBarrier);
    } else {
      EXPECT_EQ(first(x), 3);
      EXPECT_EQ(first(y), 5);
    }
  }
}

TEST_F(AppleDevice, command_buffers_that_share_buffers_are_ordered) {
  const auto x = floats(1), y = floats(2);
  std::vector<std::unique_ptr<CommandBuffer>> all;
  for (int i = 0; i < 5; ++i) {
    all.push_back(device->command_buffer("add").value());
    encode_add(all.back()->encoder(), *add(), x, y);
    all.back()->commit();
  }
  for (const auto& c : all) ASSERT_TRUE(c->wait());
  EXPECT_EQ(first(x), 11);
  EXPECT_TRUE(soft->reports().empty());
}

TEST_F(AppleDevice, views_begin_at_their_offset) {
  const auto x = floats(1), y = floats(2);
  auto commands = device->command_buffer("half").value();
  Encoder& e = commands->encoder();
  const uint32_t half = kCount / 2;
  const auto pipeline = add();
  e.set_pipeline(*pipeline);
  e.set_buffer(0, {x.get(), half * 4, half * 4});
  e.set_buffer(1, {y.get(), 0, half * 4});
  e.set_bytes(2, std::as_bytes(std::span(&half, 1)));
  e.dispatch({2}, {32});
  commands->commit();
  ASSERT_TRUE(commands->wait());
  const auto* values = reinterpret_cast<const float*>(x->contents());
  EXPECT_EQ(std::accumulate(values, values + half, 0.0f), half);
  EXPECT_EQ(std::accumulate(values + half, values + kCount, 0.0f), 3 * half);
}

TEST_F(AppleDevice, wrapped_memory_is_released_once_when_nothing_uses_it) {
  const size_t page = size_t(getpagesize());
  auto* memory =
      static_cast<std::byte*>(mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  reinterpret_cast<float*>(memory)[0] = 40;
  int released = 0;
  // not a whole page: the rest belongs to the mapping
  auto x = device->wrap(memory, kCount * 4, [&] { ++released; }, "mapped").value();
  EXPECT_EQ(x->bytes(), kCount * 4);
  EXPECT_EQ(x->contents(), memory);
  auto commands = device->command_buffer("add to mapped").value();
  encode_add(commands->encoder(), *add(), x, floats(2));
  x.reset();
  EXPECT_EQ(released, 0) << "the command buffer uses it";
  commands->commit();
  ASSERT_TRUE(commands->wait());
  commands.reset();
  EXPECT_EQ(released, 1);
  EXPECT_EQ(reinterpret_cast<float*>(memory)[0], 42);

  const auto off = device->wrap(memory + 4, 64, [&] { ++released; }, "w");
  ASSERT_FALSE(off);
  EXPECT_THAT(off.error().message, HasSubstr("w: memory to wrap must begin at a multiple of"));
  EXPECT_EQ(released, 1) << "what could not be wrapped is still the caller's";
  munmap(memory, page);
}

TEST_F(AppleDevice, lengths_that_cannot_be_are_refused) {
  EXPECT_EQ(device->allocate(0, "nothing").error().message, "nothing: a buffer cannot have 0 bytes");
  const auto large = device->allocate((uint64_t{1} << 32) + 1, "large");
  EXPECT_EQ(large.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(large.error().message,
            "large: 4294967297 bytes are more than the 4294967296 of the device's largest buffer");
}

TEST_F(AppleDevice, unknown_kernels_files_and_constants_are_told) {
  const auto kernel = device->pipeline("rms_norm", "rms_morn", {});
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().message, HasSubstr("rms_norm.metal: kernel rms_morn: "));
  const auto file = device->pipeline("norm", "rms_norm", {});
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("no kernel file norm.metal"));
  const std::array wrong{constant(0, 1u)};  // a bool
  const auto constants = device->pipeline("q4_0_mat_vec", "q4_0_mat_vec", wrong);
  ASSERT_FALSE(constants);
  EXPECT_THAT(constants.error().message, HasSubstr("q4_0_mat_vec.metal: kernel q4_0_mat_vec 0=1: "));
  EXPECT_THAT(constants.error().message, HasSubstr("has 1 bytes, 4 were given"));
}

TEST_F(AppleDevice, constants_reach_the_kernel) {
  // With kHasBias the kernel's fourth buffer must be bound, else it need not be; no row is computed.
  for (const bool bias : {false, true}) {
    const std::array constants{constant(0, bias), constant(1, 2u)};
    const auto pipeline = device->pipeline("q4_0_mat_vec", "q4_0_mat_vec", constants).value();
    EXPECT_EQ(pipeline->name(), bias ? "q4_0_mat_vec 0=1 1=2" : "q4_0_mat_vec 0=0 1=2");
    const auto x = floats(0);
    auto commands = device->command_buffer("mat_vec").value();
    Encoder& e = commands->encoder();
    e.set_pipeline(*pipeline);
    for (uint32_t i = 0; i < 3; ++i) e.set_buffer(i, {x.get(), 0, x->bytes()});
    const std::array<uint32_t, 8> args{};
    e.set_bytes(4, std::as_bytes(std::span(args)));
    e.set_threadgroup_memory(0, 16);
    e.dispatch({1}, {32});
    commands->commit();
    const auto result = commands->wait();
    EXPECT_EQ(bool(result), !bias) << (result ? "" : result.error().message);
    if (bias) {
      EXPECT_THAT(result.error().message, HasSubstr("bias"));
    }
  }
}

TEST_F(AppleDevice, a_command_buffer_that_fails_says_so_and_the_next_one_runs) {
  auto commands = device->command_buffer("step 7").value();
  const auto pipeline = add();
  commands->encoder().set_pipeline(*pipeline);
  commands->encoder().dispatch({3}, {32});  // binds nothing
  commands->commit();
  const auto result = commands->wait();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInternal);
  EXPECT_THAT(result.error().message, HasSubstr("step 7: the command buffer failed (status 5, code 1): "));
  const auto x = floats(1), y = floats(2);
  commands = device->command_buffer("step 8").value();
  encode_add(commands->encoder(), *pipeline, x, y);
  commands->commit();
  ASSERT_TRUE(commands->wait());
  EXPECT_EQ(first(x), 3);
}

TEST_F(AppleDevice, a_command_buffer_may_be_dropped) {
  {
    auto commands = device->command_buffer("never committed").value();
  }
  {
    auto commands = device->command_buffer("never waited for").value();
    encode_add(commands->encoder(), *add(), floats(1), floats(2));
    commands->commit();
  }
}

TEST_F(AppleDevice, buffers_are_resident_from_the_next_commit_to_their_end) {
  auto x = floats(1), y = floats(2);
  auto commands = device->command_buffer("add").value();
  encode_add(commands->encoder(), *add(), x, y);
  commands->commit();
  ASSERT_TRUE(commands->wait());
  EXPECT_EQ(framework::resident_allocations(), 2);
  y.reset();
  EXPECT_EQ(framework::resident_allocations(), 1);
}

TEST_F(AppleDevice, idle_it_keeps_nothing_resident_until_the_next_work) {
  using namespace std::chrono_literals;
  device.reset();
  device = system_device({.idle = 5ms}).value();
  const auto x = floats(1), y = floats(2);
  const auto run = [&] {
    auto commands = device->command_buffer("add").value();
    encode_add(commands->encoder(), *add(), x, y);
    commands->commit();
    EXPECT_EQ(framework::resident_allocations(), 2) << "until somebody knows that it has completed";
    ASSERT_TRUE(commands->wait());
  };
  const auto nothing_is_resident = [] {
    for (int i = 0; i < 2000 && framework::resident_allocations() != 0; ++i) std::this_thread::sleep_for(5ms);
    return framework::resident_allocations() == 0;
  };
  for (int i = 0; i < 3; ++i) {
    run();
    EXPECT_TRUE(nothing_is_resident());
  }
  const auto z = floats(3);
  EXPECT_TRUE(nothing_is_resident()) << "a new buffer alone is no work";
  {
    auto commands = device->command_buffer("never waited for").value();
    encode_add(commands->encoder(), *add(), x, z);
    commands->commit();
  }
  EXPECT_TRUE(nothing_is_resident());
}

class KeptPipelines : public AppleDevice {
 public:
  void TearDown() override {
    set_log_handler({});
    AppleDevice::TearDown();
  }
  /// As a process would that finds what earlier ones kept: how many of two pipelines it compiles.
  long compiled_by_a_run() {
    told.clear();
    set_log_handler([this](LogLevel, const std::string& line) { told.push_back(line); });
    make({.check = true});
    const long before = framework::compiled_pipelines();
    device->keep_pipelines_in(folder.path_of("a/cache"));
    device->keep_pipelines_in(folder.path_of("a/cache"));  // another executor of the same device
    const std::array constants{constant(0, false), constant(1, 2u)};
    EXPECT_TRUE(device->pipeline("rms_norm", "add", {}));
    device->store_pipelines();
    EXPECT_TRUE(device->pipeline("q4_0_mat_vec", "q4_0_mat_vec", constants));
    device->store_pipelines();
    device->store_pipelines();
    return framework::compiled_pipelines() - before;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path_of("a/cache")))
      names.push_back(entry.path());
    return names;
  }

  test_support::TemporaryFolder folder;
  std::vector<std::string> told;
};

TEST_F(KeptPipelines, are_compiled_once) {
  EXPECT_EQ(compiled_by_a_run(), 2);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_THAT(files().front(), MatchesRegex(".*/metal-[0-9a-f]+\\.archive"));
  EXPECT_EQ(compiled_by_a_run(), 0);
  EXPECT_THAT(told, IsEmpty());
}

TEST_F(KeptPipelines, of_other_constants_are_others) {
  EXPECT_EQ(compiled_by_a_run(), 2);
  const long before = framework::compiled_pipelines();
  const std::array constants{constant(0, false), constant(1, 3u)};
  EXPECT_TRUE(device->pipeline("q4_0_mat_vec", "q4_0_mat_vec", constants));
  EXPECT_EQ(framework::compiled_pipelines() - before, 1);
}

TEST_F(KeptPipelines, damaged_or_of_another_gpu_are_compiled_again_and_that_is_told_once) {
  for (const char* damage : {"", "cut", "look-alike archive\nanother\nend\n"}) {
    compiled_by_a_run();
    const std::string path = files().front();
    std::ofstream(path) << damage;
    EXPECT_EQ(compiled_by_a_run(), 2);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_THAT(told.front(), StartsWith(path + ": the kept Metal pipelines cannot be used and are compiled again: "));
    EXPECT_EQ(compiled_by_a_run(), 0) << "the good file took the place of the bad one";
    EXPECT_EQ(files().size(), 1u);
  }
}

TEST_F(KeptPipelines, that_cannot_be_written_are_done_without_and_that_is_told_once) {
  folder.write("a", "a file where the folder would be");
  EXPECT_EQ(compiled_by_a_run(), 2);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told.front(), StartsWith("Metal pipelines are not kept: cannot create the folder "));
}

TEST(ArchiveFile, is_another_for_other_kernels_gpus_and_systems) {
  const std::array kernels{EmbeddedFile{"a", "text"}};
  const std::array changed{EmbeddedFile{"a", "tex"}, EmbeddedFile{"t", ""}};
  const std::string path = ArchiveFile("f", "gpu", "15", kernels).path();
  EXPECT_EQ(ArchiveFile("f", "gpu", "15", kernels).path(), path);
  EXPECT_NE(ArchiveFile("f", "gpu", "16", kernels).path(), path);
  EXPECT_NE(ArchiveFile("f", "gpu1", "5", kernels).path(), path);
  EXPECT_NE(ArchiveFile("f", "gpu", "15", changed).path(), path);
}

TEST(ArchiveFile, is_as_it_was_when_writing_fails) {
  const test_support::TemporaryFolder folder;
  const ArchiveFile file(folder.path(), "gpu", "15");
  const auto write = [](const char* text) {
    return [text](const std::string& path) -> Result<void> {
      std::ofstream(path) << text;
      return *text == '!' ? Result<void>(fail(ErrorCode::kIo, "no room")) : Result<void>();
    };
  };
  EXPECT_FALSE(file.exists());
  ASSERT_TRUE(file.replace(write("old")));
  EXPECT_TRUE(file.exists());
  EXPECT_EQ(file.replace(write("!")).error().message, "no room");
  std::string text;
  std::getline(std::ifstream(file.path()) >> std::ws, text);
  EXPECT_EQ(text, "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(KernelText, of_every_file_has_no_quoted_include_left_and_each_included_file_once) {
  size_t kernels = 0;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.ends_with(".metal")) continue;
    ++kernels;
    const std::string_view name = file.path.substr(file.path.rfind('/') + 1);
    const auto text = kernel_text(name.substr(0, name.size() - 6));
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_THAT(*text, StartsWith("#pragma METAL fp contract(off)\n#pragma clang fp contract(off)\n#line 1 "));
    EXPECT_THAT(*text, Not(HasSubstr("#include \"")));
    EXPECT_THAT(*text, Not(HasSubstr("#pragma once")));
    for (const EmbeddedFile& other : embedded_files()) {
      const std::string begin = "#line 1 \"" + std::string(other.path) + "\"";
      const size_t at = text->find(begin);
      if (at != std::string::npos) {
        EXPECT_EQ(text->find(begin, at + 1), std::string::npos) << other.path << " twice in " << file.path;
      }
    }
  }
  EXPECT_GE(kernels, 10u);
}

TEST(KernelText, keeps_names_and_lines_and_tells_what_is_not_embedded) {
  const std::array files{EmbeddedFile{"a/k.metal", "one\n#include \"../b/h.h\"\n#include \"../b/h.h\"\nfour"},
                         EmbeddedFile{"b/h.h", "#pragma once\nh\n"},
                         EmbeddedFile{"a/l.metal", "\n#include \"gone.h\"\n"}};
  EXPECT_EQ(kernel_text("k", files).value(),
            "#pragma METAL fp contract(off)\n#pragma clang fp contract(off)\n"
            "#line 1 \"a/k.metal\"\none\n#line 1 \"b/h.h\"\n\nh\n#line 3 \"a/k.metal\"\n#line 4 \"a/k.metal\"\nfour\n");
  EXPECT_EQ(kernel_text("l", files).error().message, "a/l.metal:2 includes a/gone.h, which this build does not embed");
}

}  // namespace
}  // namespace honeycrisp::backend::metal
