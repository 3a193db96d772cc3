// The host's side of the software Metal device: what it refuses, what the checker says of dispatches without barriers,
// encoders without fences, views and the host's own accesses.
#include "cases.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

namespace honeycrisp::backend::metal::soft::testing {
namespace {

constexpr uint32_t kCount = 96;

class MetalDevice : public ::testing::Test {
 public:
  void make(const DeviceOptions& options) {
    device = Device::create(options).value();
    add = device->new_pipeline(device->open_library("test_kernels").value(), "add").value();
    x = buffer_of(*device, std::vector<float>(kCount, 1.0f));
    y = buffer_of(*device, std::vector<float>(kCount, 2.0f));
    x->set_label("x");
  }
  /// x += y
  void encode_add(Encoder& e, const std::shared_ptr<Buffer>& to, const std::shared_ptr<Buffer>& from) {
    e.set_pipeline(add);
    e.set_buffer(to, 0, 0);
    e.set_buffer(from, 0, 1);
    e.set_value(kCount, 2);
    e.dispatch_threadgroups({3}, {32});
  }
  std::shared_ptr<CommandBuffer> run_add(const std::shared_ptr<Buffer>& to, const std::shared_ptr<Buffer>& from) {
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    encode_add(*e, to, from);
    e->end();
    commands->commit();
    return commands;
  }
  std::vector<Fault> faults() const {
    std::vector<Fault> f;
    for (const Report& r : device->reports()) f.push_back(r.fault);
    return f;
  }
  static float first(const std::shared_ptr<Buffer>& b) { return *static_cast<float*>(b->contents()); }

  std::shared_ptr<Device> device;
  std::shared_ptr<const Pipeline> add;
  std::shared_ptr<Buffer> x, y;
};

using Faults = std::vector<Fault>;

TEST_F(MetalDevice, two_dispatches_of_a_concurrent_encoder_need_a_barrier) {
  for (const uint32_t seed : {0u, 1u, 2u, 3u}) {
    for (const bool barrier : {true, false}) {
      make({.check = true, .seed = seed});
      const auto commands = device->new_command_buffer();
      const auto e = commands->new_encoder(DispatchType::kConcurrent);
      encode_add(*e, x, y);
      if (barrier) e->memory_barrier();
      encode_add(*e, y, x);
      e->end();
      commands->commit();
      commands->wait();
      ASSERT_TRUE(commands->result());
      EXPECT_EQ(faults().empty(), barrier);
      if (barrier) continue;
      const Report r = device->reports().front();
      EXPECT_EQ(r.fault, Fault::kMissingBarrier);
      EXPECT_EQ(r.place.file, "rms_norm.metal");
      ASSERT_TRUE(r.other);
      EXPECT_EQ(r.other->file, "rms_norm.metal");
      EXPECT_GT(r.other->line, 0);
    }
  }
}

TEST_F(MetalDevice, a_barrier_for_one_buffer_orders_only_that) {
  make({.check = true});
  const auto z = buffer_of(*device, std::vector<float>(kCount, 3.0f));
  for (const auto& [ordered, reported] : {std::pair(x, false), std::pair(z, true)}) {
    device->clear_reports();
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    encode_add(*e, x, y);
    e->memory_barrier(std::array{ordered});
    encode_add(*e, z, x);
    e->end();
    commands->commit();
    commands->wait();
    EXPECT_EQ(faults(), reported ? Faults{Fault::kMissingBarrier} : Faults{});
  }
}

TEST_F(MetalDevice, a_serial_encoder_orders_its_dispatches) {
  make({.check = true, .seed = 5});
  const auto commands = device->new_command_buffer();
  const auto e = commands->new_encoder(DispatchType::kSerial);
  for (int i = 0; i < 3; ++i) encode_add(*e, x, y);
  e->end();
  commands->commit();
  commands->wait();
  EXPECT_EQ(faults(), Faults{});
  EXPECT_EQ(first(x), 7);
}

TEST_F(MetalDevice, untracked_buffers_need_fences_between_encoders_and_command_buffers) {
  for (const bool fenced : {true, false}) {
    for (const bool two_commands : {true, false}) {
      make({.check = true});
      x = device->new_buffer(kCount * 4, Hazards::kUntracked).value();
      std::fill_n(static_cast<float*>(x->contents()), kCount, 1.0f);
      const auto fence = device->new_fence();
      auto commands = device->new_command_buffer();
      const auto first_commands = commands;
      auto e = commands->new_encoder(DispatchType::kConcurrent);
      encode_add(*e, x, y);
      e->update_fence(*fence);
      e->end();
      if (two_commands) {
        commands->commit();
        commands = device->new_command_buffer();
      }
      e = commands->new_encoder(DispatchType::kConcurrent);
      if (fenced) e->wait_for_fence(*fence);
      encode_add(*e, x, y);
      e->end();
      commands->commit();
      commands->wait();
      first_commands->wait();
      EXPECT_EQ(faults(), fenced ? Faults{} : Faults{Fault::kMissingFence});
    }
  }
}

TEST_F(MetalDevice, waiting_for_completion_orders_untracked_buffers_too) {
  make({.check = true});
  x = device->new_buffer(kCount * 4, Hazards::kUntracked).value();
  std::fill_n(static_cast<float*>(x->contents()), kCount, 1.0f);
  for (int i = 0; i < 2; ++i) run_add(x, y)->wait();
  EXPECT_EQ(faults(), Faults{});
  EXPECT_EQ(first(x), 5);
}

TEST_F(MetalDevice, host_access_before_completion_is_reported) {
  make({.check = true});
  const auto commands = device->new_command_buffer();
  const auto e = commands->new_encoder(DispatchType::kConcurrent);
  encode_add(*e, x, y);
  e->end();
  *static_cast<volatile float*>(x->contents()) = 1.0f;  // before the commit the memory is the host's
  commands->commit();
  EXPECT_EQ(*static_cast<volatile float*>(y->contents()), 2.0f);  // what is only read may be read
  EXPECT_EQ(faults(), Faults{});
  EXPECT_TRUE(std::isfinite(*static_cast<volatile float*>(x->contents())));
  EXPECT_EQ(faults(), Faults{Fault::kHostAccess});
  *(static_cast<volatile float*>(y->contents()) + 5) = 2.0f;
  EXPECT_EQ(faults(), (Faults{Fault::kHostAccess, Fault::kHostAccess}));
  EXPECT_NE(to_string(device->reports()[0]).find("buffer x"), std::string::npos);
  commands->wait();
  EXPECT_EQ(first(x), 3);
  EXPECT_EQ(faults().size(), 2u);
}

TEST_F(MetalDevice, waiting_for_a_command_buffer_gives_back_what_earlier_ones_use) {
  make({.check = true});
  const auto z = buffer_of(*device, std::vector<float>(kCount, 3.0f));
  run_add(x, y);
  run_add(z, y)->wait();
  EXPECT_EQ(first(x), 3);
  EXPECT_EQ(first(z), 5);
  EXPECT_EQ(faults(), Faults{});
}

TEST_F(MetalDevice, completion_orders_what_was_committed_later_not_what_was_encoded_later) {
  make({.check = true});
  x = device->new_buffer(kCount * 4, Hazards::kUntracked).value();
  std::fill_n(static_cast<float*>(x->contents()), kCount, 1.0f);
  const auto early = device->new_command_buffer();
  const auto e = early->new_encoder(DispatchType::kConcurrent);
  encode_add(*e, x, y);
  e->end();
  run_add(y, y)->wait();  // encoded after it, completed before it
  early->commit();
  run_add(x, y)->wait();
  EXPECT_EQ(faults(), Faults{Fault::kMissingFence});
}

TEST_F(MetalDevice, what_is_encoded_after_the_commit_is_reported_and_left_out) {
  for (const bool check : {false, true}) {
    make({.check = check});
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    encode_add(*e, x, y);
    e->end();
    commands->commit();
    encode_add(*e, x, y);
    commands->on_completed([](CommandBuffer&) { ADD_FAILURE(); });
    encode_add(*commands->new_encoder(DispatchType::kConcurrent), x, y);
    commands->wait();
    EXPECT_TRUE(commands->result());
    EXPECT_EQ(first(x), 3);
    ASSERT_EQ(device->reports().size(), 3u);
    EXPECT_EQ(device->reports()[0].detail, "a dispatch after the commit");
    EXPECT_EQ(device->reports()[1].detail, "a completion handler after the commit");
    EXPECT_EQ(device->reports()[2].detail, "an encoder after the commit");
  }
}

TEST_F(MetalDevice, an_encoder_must_be_ended_before_the_commit) {
  make({});
  const auto commands = device->new_command_buffer();
  const auto e = commands->new_encoder(DispatchType::kConcurrent);
  encode_add(*e, x, y);
  commands->commit();
  commands->wait();
  ASSERT_FALSE(commands->result());
  EXPECT_EQ(commands->result().error().message, "committed with an encoder that was not ended");
  EXPECT_EQ(first(x), 1);
}

TEST_F(MetalDevice, a_buffer_outlives_its_device) {
  make({.check = true});
  run_add(x, y);  // nobody learns of the completion
  add.reset();
  for (const std::weak_ptr<Device> gone = std::exchange(device, nullptr); !gone.expired();) usleep(1000);
  EXPECT_EQ(first(x), 3);
}

TEST_F(MetalDevice, new_buffers_are_not_a_number_when_checking) {
  make({.check = true});
  const auto b = device->new_buffer(64).value();
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isnan(static_cast<float*>(b->contents())[i]));
}

TEST_F(MetalDevice, an_access_through_one_view_into_its_neighbour_is_reported) {
  make({.check = true});
  // both views lie in one buffer, side by side, and both are bound
  const auto slab = device->new_buffer(2 * kCount * 4).value();
  const auto commands = device->new_command_buffer();
  const auto e = commands->new_encoder(DispatchType::kConcurrent);
  e->set_pipeline(add);
  e->set_buffer(slab, 0, 0, kCount * 4);
  e->set_buffer(slab, kCount * 4, 1, kCount * 4);
  e->set_value(kCount + 1, 2);
  e->dispatch_threadgroups({4}, {32});
  e->end();
  commands->commit();
  commands->wait();
  EXPECT_EQ(faults(), Faults{Fault::kOutOfBounds});
  EXPECT_FALSE(commands->result());
  EXPECT_EQ(commands->status(), Status::kError);
}

TEST_F(MetalDevice, dispatches_that_lack_something_fail_their_command_buffer_only) {
  make({.check = true});
  struct Wrong {
    const char* message;
    void (*encode)(MetalDevice&, Encoder&);
  };
  const Wrong wrongs[] = {
      {"add: buffer(1) y is not bound",
       [](MetalDevice& t, Encoder& e) {
         e.set_buffer(t.x, 0, 0);
         e.set_value(kCount, 2);
         e.dispatch_threadgroups({1}, {32});
       }},
      {"add: buffer(2) count has 2 bytes, the kernel reads 4",
       [](MetalDevice& t, Encoder& e) {
         e.set_buffer(t.x, 0, 0);
         e.set_buffer(t.y, 0, 1);
         e.set_value(uint16_t{3}, 2);
         e.dispatch_threadgroups({1}, {32});
       }},
      {"add: buffer(0) x is written, but set as bytes",
       [](MetalDevice& t, Encoder& e) {
         e.set_value(1.0f, 0);
         e.set_buffer(t.y, 0, 1);
         e.set_value(kCount, 2);
         e.dispatch_threadgroups({1}, {32});
       }},
      {"add: 2048 x 1 x 1 threads per threadgroup; 1 to 1024 are possible",
       [](MetalDevice& t, Encoder& e) { t.encode_add(e, t.x, t.y), e.dispatch_threadgroups({1}, {2048}); }},
      {"add: a grid of 0 x 1 x 1 threadgroups", [](MetalDevice&, Encoder& e) { e.dispatch_threadgroups({0}, {32}); }},
      {"add: a grid of 1 x 134217728 x 1 threadgroups",  // 2^32 threads
       [](MetalDevice&, Encoder& e) { e.dispatch_threadgroups({1, 1u << 27}, {1, 32}); }},
      {"add: a grid of 4194304 x 4194304 x 1048576 threadgroups",  // 2^64
       [](MetalDevice&, Encoder& e) { e.dispatch_threadgroups({1u << 22, 1u << 22, 1u << 20}, {32}); }},
      {"buffer(0): a view of 8 bytes at 380 of a buffer of 384 bytes",
       [](MetalDevice& t, Encoder& e) { e.set_buffer(t.x, 380, 0, 8); }},
      {"threadgroup(0) of 24 bytes: a multiple of 16, up to 32768, index up to 7",
       [](MetalDevice&, Encoder& e) { e.set_threadgroup_memory(24, 0); }},
  };
  for (const Wrong& w : wrongs) {
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    e->set_pipeline(add);
    w.encode(*this, *e);
    e->end();
    commands->commit();
    commands->wait();
    ASSERT_FALSE(commands->result()) << w.message;
    EXPECT_EQ(commands->result().error().message, w.message);
  }
  device->clear_reports();
  const auto commands = run_add(x, y);
  commands->wait();
  EXPECT_TRUE(commands->result());
  EXPECT_EQ(first(x), 3);
}

TEST_F(MetalDevice, pipelines_say_what_is_wrong_with_names_and_constants) {
  make({});
  const auto library = device->open_library("test_kernels").value();
  EXPECT_NE(device->new_pipeline(library, "nothing").error().message.find("no kernel named nothing"),
            std::string::npos);
  FunctionConstants wrong;
  wrong.set<uint32_t>(0, 1);
  EXPECT_EQ(device->new_pipeline(library, "q4_0_mat_vec", wrong).error().message,
            "q4_0_mat_vec: function constant kHasBias (index 0) has 1 bytes, 4 were given");
  EXPECT_NE(device->open_library("no_such_library").error().message.find("no_such_library"), std::string::npos);
  const auto checked = Library::default_path("test_kernels", true);
  EXPECT_NE(device->open_library(checked).error().message.find("does not check"), std::string::npos);
}

TEST_F(MetalDevice, reports_are_limited_and_not_repeated) {
  make({.check = true, .report_limit = 1});
  for (int i = 0; i < 3; ++i) {
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    encode_add(*e, x, y);
    encode_add(*e, x, y);
    encode_add(*e, y, x);
    e->end();
    commands->commit();
    commands->wait();
  }
  EXPECT_EQ(device->reports().size(), 1u);
  EXPECT_GT(device->faults_met(), 1u);
}

TEST_F(MetalDevice, handlers_run_once_in_order_before_wait_returns) {
  for (const bool check : {false, true}) {
    make({.check = check});
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    encode_add(*e, x, y);
    e->end();
    std::vector<int> order;
    float seen = 0;
    commands->on_completed([&](CommandBuffer& c) {
      order.push_back(1);
      if (c.status() == Status::kCompleted) seen = first(x);  // the handler knows of the completion
    });
    commands->on_completed([&](CommandBuffer& c) {
      c.wait();  // of itself: does not block
      usleep(20'000);
      order.push_back(2);
    });
    EXPECT_EQ(commands->status(), Status::kEncoding);
    commands->commit();
    commands->wait();
    EXPECT_EQ(order, (std::vector{1, 2}));
    EXPECT_EQ(seen, 3);
    EXPECT_EQ(commands->status(), Status::kCompleted);
    EXPECT_EQ(faults(), Faults{});
  }
}

TEST_F(MetalDevice, memory_of_the_caller_is_used_in_place_and_released_once) {
  make({});
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::fill_n(static_cast<float*>(memory), kCount, 4.0f);
  EXPECT_FALSE(device->wrap_memory(static_cast<char*>(memory) + 16, page, {}));
  EXPECT_FALSE(device->wrap_memory(memory, page - 1, {}));
  int released = 0;
  {
    const auto wrapped = device->wrap_memory(memory, page, [&] { ++released; }).value();
    run_add(wrapped, y)->wait();
    EXPECT_EQ(*static_cast<float*>(memory), 6);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
  munmap(memory, page);
}

TEST_F(MetalDevice, a_device_may_be_dropped_while_it_works) {
  std::atomic<int> done = 0;
  {
    make({.threads = 2});
    const auto commands = device->new_command_buffer();
    const auto e = commands->new_encoder(DispatchType::kConcurrent);
    encode_add(*e, x, y);
    e->end();
    commands->on_completed([&](CommandBuffer&) { ++done; });
    commands->commit();
    device.reset();
  }
  while (done == 0) usleep(1000);
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace honeycrisp::backend::metal::soft::testing
