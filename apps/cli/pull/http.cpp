#include "cli/pull/http.h"

#include "base/text_escape.h"
#include "cli/pull/part_file.h"
#include "cli/pull/url.h"
#include "cli/term/interrupt.h"
#include "cli/term/messages.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <curl/curl.h>
#include <fmt/format.h>
#include <memory>
#include <thread>
#include <vector>

namespace honeycrisp::cli {
namespace {

constexpr int kMostRedirects = 10;
constexpr long kConnectSeconds = 20;
constexpr long kStalledSeconds = 30;            // without a byte
constexpr uint64_t kProgressBytes = 64 * 1024;  // a try that brought this much resets the count of retries
constexpr auto kFirstPause = std::chrono::milliseconds(300);
constexpr auto kLongestPause = std::chrono::seconds(20);

struct EasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct HeaderDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Easy = std::unique_ptr<CURL, EasyDeleter>;
using HeaderList = std::unique_ptr<curl_slist, HeaderDeleter>;

struct Response {
  long status = 0;
  std::string etag, last_modified;
  std::optional<uint64_t> length;                    // Content-Length
  std::optional<uint64_t> range_first, range_total;  // Content-Range
};

/// How one try ended. Faults that may pass are tried again; others are final.
struct Outcome {
  enum class Kind { kDone, kTransient, kFinal } kind = Kind::kDone;
  Error error;
  std::chrono::milliseconds pause{0};  // asked for by the server

  static Outcome done() { return {}; }
  static Outcome transient(std::string message) { return {Kind::kTransient, {ErrorCode::kIo, std::move(message)}, {}}; }
  static Outcome final(Error error) { return {Kind::kFinal, std::move(error), {}}; }
};

/// Takes the bytes of a response. begin() is called once, before the first byte, with a status of 200 or 206.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Result<void> begin(const Response& response) = 0;
  virtual Result<void> write(std::string_view bytes) = 0;
};

struct Transfer {
  Response response;
  Sink* sink = nullptr;
  bool begun = false;
  std::optional<Error> error;  // why a callback ended the transfer

  bool keep(Result<void> result) {
    if (result) return true;
    error = std::move(result).error();
    return false;
  }
};

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() && end == text.data() + text.size() && !text.empty() ? std::optional(value)
                                                                                   : std::nullopt;
}

/// "bytes 100-199/200" or "bytes */200".
void parse_content_range(std::string_view text, Response& response) {
  if (!text.starts_with("bytes ")) return;
  text.remove_prefix(6);
  response.range_first = parse_number(text.substr(0, text.find('-')));
  if (const size_t slash = text.find('/'); slash != std::string_view::npos)
    response.range_total = parse_number(text.substr(slash + 1));
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& response = static_cast<Transfer*>(user)->response;
  std::string_view line(data, size * count);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {
    response = {};  // a new response begins, after a "100 Continue" for instance
    const size_t space = std::min(line.find(' '), line.size() - 1);
    response.status = long(parse_number(line.substr(space + 1, 3)).value_or(0));
    return size * count;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size * count;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (name == "etag") response.etag = value;
  if (name == "last-modified") response.last_modified = value;
  if (name == "content-length") response.length = parse_number(value);
  if (name == "content-range") parse_content_range(value, response);
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.response.status != 200 && transfer.response.status != 206) return size * count;  // an error page
  if (!transfer.begun) {
    transfer.begun = true;
    if (!transfer.keep(transfer.sink->begin(transfer.response))) return 0;
  }
  return transfer.keep(transfer.sink->write({data, size * count})) ? size * count : 0;
}

int on_tick(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return interrupt_requested() ? 1 : 0; }

bool may_pass(CURLcode code) {
  constexpr std::array kCodes = {CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_PARTIAL_FILE,
                                 CURLE_OPERATION_TIMEDOUT,   CURLE_GOT_NOTHING,     CURLE_SEND_ERROR,
                                 CURLE_RECV_ERROR,           CURLE_HTTP2,           CURLE_HTTP2_STREAM,
                                 CURLE_SSL_CONNECT_ERROR};
  return std::find(kCodes.begin(), kCodes.end(), code) != kCodes.end();
}

bool may_pass(long status) {
  constexpr std::array kStatuses = {408L, 425L, 429L, 500L, 502L, 503L, 504L};
  return std::find(kStatuses.begin(), kStatuses.end(), status) != kStatuses.end();
}

/// A certificate bundle from the variables that pip and curl know, for machines behind a proxy of their own.
void use_certificates_from_environment(CURL* easy) {
  for (const char* variable : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "PIP_CERT"})
    if (const char* file = std::getenv(variable); file != nullptr && *file != '\0') {
      curl_easy_setopt(easy, CURLOPT_CAINFO, file);
      return;
    }
}

/// What the status says once a response is complete.
Outcome judge_status(CURL* easy, const std::string& url, long status) {
  if (status == 200 || status == 206) return Outcome::done();
  const std::string shown = display_url(url);
  if (may_pass(status)) {
    Outcome outcome = Outcome::transient(fmt::format("{}: the server answered {}", shown, status));
    curl_off_t seconds = 0;
    if (curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0)
      outcome.pause = std::chrono::seconds(std::min<curl_off_t>(seconds, 3600));
    return outcome;
  }
  if (status == 404 || status == 410)
    return Outcome::final(
        {ErrorCode::kNotFound, fmt::format("{}: there is no such file (the server answered {})", shown, status)});
  if (status == 401 || status == 403)
    return Outcome::final(
        {ErrorCode::kIo,
         fmt::format("{}: access is denied (the server answered {}); the file may need an account", shown, status)});
  return Outcome::final({ErrorCode::kIo, fmt::format("{}: the server answered {}", shown, status)});
}

/// One request for one URL; a redirect comes back in `redirect`.
Outcome request_once(const std::string& url, const std::vector<std::string>& headers, Transfer& transfer,
                     std::string& redirect) {
  const Easy easy(curl_easy_init());
  if (!easy) return Outcome::final({ErrorCode::kInternal, "libcurl cannot be initialised"});
  HeaderList list;
  for (const std::string& header : headers) list.reset(curl_slist_append(list.release(), header.c_str()));
  std::array<char, CURL_ERROR_SIZE> detail{};
  CURL* e = easy.get();
  curl_easy_setopt(e, CURLOPT_URL, url.c_str());
  curl_easy_setopt(e, CURLOPT_HTTPHEADER, list.get());
  curl_easy_setopt(e, CURLOPT_USERAGENT, "honeycrisp/" HONEYCRISP_VERSION);
  curl_easy_setopt(e, CURLOPT_ERRORBUFFER, detail.data());
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_tick);
  use_certificates_from_environment(e);

  const CURLcode code = curl_easy_perform(e);
  if (transfer.error) return Outcome::final(*transfer.error);
  if (interrupt_requested()) return Outcome::final({ErrorCode::kCancelled, ""});
  if (code != CURLE_OK) {
    const char* why = detail[0] != '\0' ? detail.data() : curl_easy_strerror(code);
    const bool unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
                             code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT;
    const std::string message = fmt::format("{}: {}{}", display_url(url), why,
                                            unreachable ? " (is there a network, and does it need a proxy?)" : "");
    return may_pass(code) ? Outcome::transient(message) : Outcome::final({ErrorCode::kIo, message});
  }
  char* location = nullptr;
  if (transfer.response.status / 100 == 3 && curl_easy_getinfo(e, CURLINFO_REDIRECT_URL, &location) == CURLE_OK &&
      location != nullptr) {
    redirect = location;
    return Outcome::done();
  }
  return judge_status(e, url, transfer.response.status);
}

/// One try: follows redirects to the end.
Outcome try_request(std::string url, const std::vector<std::string>& headers, Sink& sink, Response& response) {
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    if (const Result<void> allowed = check_url_allowed(url); !allowed) return Outcome::final(allowed.error());
    Transfer transfer;
    transfer.sink = &sink;
    std::string redirect;
    const Outcome outcome = request_once(url, headers, transfer, redirect);
    response = transfer.response;
    if (redirect.empty()) {
      if (outcome.kind == Outcome::Kind::kDone && !transfer.begun)  // an empty body
        if (Result<void> begun = sink.begin(response); !begun) return Outcome::final(begun.error());
      return outcome;
    }
    url = redirect;
  }
  return Outcome::final({ErrorCode::kIo, fmt::format("{}: more than {} redirects", display_url(url), kMostRedirects)});
}

/// Waits, unless Ctrl-C ends it.
void pause_for(std::chrono::milliseconds length) {
  const auto until = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < until && !interrupt_requested())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

/// Calls `attempt` until it is done, final, or has failed more than `retries` times in a row without progress.
template <class Attempt, class BytesSoFar>
Result<void> with_retries(int retries, Attempt attempt, BytesSoFar bytes_so_far) {
  int failures = 0;
  for (;;) {
    const uint64_t before = bytes_so_far();
    const Outcome outcome = attempt();
    if (outcome.kind == Outcome::Kind::kDone) return {};
    if (outcome.kind == Outcome::Kind::kFinal) return tl::unexpected<Error>(outcome.error);
    failures = bytes_so_far() >= before + kProgressBytes ? 1 : failures + 1;
    if (failures > retries) return tl::unexpected<Error>(outcome.error);
    const auto backoff =
        std::min<std::chrono::milliseconds>(kFirstPause * (1 << std::min(failures - 1, 10)), kLongestPause);
    const auto pause = std::max(backoff, std::min<std::chrono::milliseconds>(outcome.pause, kLongestPause * 3));
    print_note(fmt::format("{}; trying again in {:.1f} s", outcome.error.message, double(pause.count()) / 1000));
    pause_for(pause);
    if (interrupt_requested()) return Fail(ErrorCode::kCancelled, "");
  }
}

class DocumentSink : public Sink {
 public:
  explicit DocumentSink(size_t limit) : limit_(limit) {}
  Result<void> begin(const Response&) override {
    text_.clear();
    return {};
  }
  Result<void> write(std::string_view bytes) override {
    if (text_.size() + bytes.size() > limit_) return invalid("the document is longer than {} bytes", limit_);
    text_ += bytes;
    return {};
  }
  std::string text_;

 private:
  size_t limit_;
};

/// Writes a download into its part file, from where the response says it starts.
class PartSink : public Sink {
 public:
  PartSink(const Download& request, PartFile& part) : request_(request), part_(part) {}

  Result<void> begin(const Response& response) override {
    total_ = response.status == 206 ? response.range_total : response.length;
    if (request_.expected_bytes && total_ && *total_ != *request_.expected_bytes)
      return fail(ErrorCode::kIo, "{}: the server has {} bytes, expected {}", display_url(request_.url), *total_,
                  *request_.expected_bytes);
    if (response.status == 206) {
      if (response.range_first != part_.size())
        return fail(ErrorCode::kIo, "{}: the server sent another range than it was asked for",
                    display_url(request_.url));
    } else {
      HC_TRY(part_.restart({response.etag, response.last_modified}));
      start_.clear();
      start_checked_ = !request_.check_start;
    }
    if (total_ && *total_ > part_.size()) HC_TRY(part_.check_space(*total_ - part_.size()));
    return {};
  }

  Result<void> write(std::string_view bytes) override {
    const std::optional<uint64_t> most = request_.expected_bytes ? request_.expected_bytes : total_;
    if (most && bytes.size() > *most - std::min(*most, part_.size()))
      return fail(ErrorCode::kIo, "{}: the server sends more than the {} bytes it announced", display_url(request_.url),
                  *most);
    HC_TRY(check_start(bytes));
    HC_TRY(part_.append(bytes));
    if (request_.progress) request_.progress(part_.size(), most);
    return {};
  }

  Result<void> finish() { return start_checked_ ? Result<void>() : request_.check_start(start_); }
  std::optional<uint64_t> total() const { return total_; }

 private:
  Result<void> check_start(std::string_view bytes) {
    if (start_checked_) return {};
    start_ += bytes.substr(0, 64);
    if (start_.size() < 4) return {};
    start_checked_ = true;
    return request_.check_start(start_);
  }

  const Download& request_;
  PartFile& part_;
  std::optional<uint64_t> total_;
  std::string start_;
  bool start_checked_ = true;  // bytes kept from an earlier try have been looked at then
};

/// The headers that ask for the rest of a file; empty: ask for all of it.
std::vector<std::string> resume_headers(const Download& request, const PartFile& part) {
  if (part.size() == 0) return {};
  const std::string range = fmt::format("Range: bytes={}-", part.size());
  const PartFile::Validator& validator = part.validator();
  // A weak tag says "equivalent", which is not "the same bytes": RFC 9110, 13.1.5.
  if (!validator.etag.empty() && !validator.etag.starts_with("W/")) return {range, "If-Range: " + validator.etag};
  if (!validator.last_modified.empty()) return {range, "If-Range: " + validator.last_modified};
  if (request.hash_follows) return {range};
  return {};
}

}  // namespace

Result<std::string> fetch_document(const std::string& url, const std::string& accept, size_t limit, int retries) {
  DocumentSink sink(limit);
  Response response;
  HC_TRY(with_retries(
      retries, [&] { return try_request(url, {"Accept: " + accept}, sink, response); },
      [&]() -> uint64_t { return 0; }));
  return std::move(sink.text_);
}

Result<void> download(const Download& request) {
  HC_ASSIGN(PartFile part, PartFile::open(request.part_path, request.url));
  const auto attempt = [&]() -> Outcome {
    if (request.expected_bytes && part.size() == *request.expected_bytes) return Outcome::done();
    PartSink sink(request, part);
    Response response;
    Outcome outcome = try_request(request.url, resume_headers(request, part), sink, response);
    if (response.status == 416) {  // nothing after what is here: either complete, or another file by now
      if (part.size() > 0 && response.range_total == part.size()) return Outcome::done();
      if (Result<void> restarted = part.restart({}); !restarted) return Outcome::final(restarted.error());
      return Outcome::transient(fmt::format("{}: the file has changed on the server", display_url(request.url)));
    }
    if (outcome.kind != Outcome::Kind::kDone) return outcome;
    if (Result<void> checked = sink.finish(); !checked) return Outcome::final(checked.error());
    const std::optional<uint64_t> whole = request.expected_bytes ? request.expected_bytes : sink.total();
    if (whole && part.size() < *whole)
      return Outcome::transient(
          fmt::format("{}: the connection ended after {} of {} bytes", display_url(request.url), part.size(), *whole));
    return Outcome::done();
  };
  HC_TRY(with_retries(request.retries, attempt, [&] { return part.size(); }));
  return part.sync();
}

}  // namespace honeycrisp::cli
