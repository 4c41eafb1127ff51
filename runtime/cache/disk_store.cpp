#include "runtime/cache/disk_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "ir/text/lexer.h"
#include "runtime/cache/file_trust.h"
#include "runtime/cache/image_record.h"
#include "runtime/cache/sqlite_file.h"
#include "runtime/cache/store_file.h"

namespace srjit {
namespace {

// Uses are recorded at this granularity, so that a program that runs repeatedly only reads.
constexpr std::int64_t kUseMilliseconds = 600'000;

std::int64_t now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::uint64_t unsignedOf(std::int64_t number) { return static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0)); }

std::span<const std::byte> bytesOf(const Digest& digest) { return std::as_bytes(std::span(digest)); }

/// All zero if the column holds no digest.
Digest digestIn(const SqliteStatement& statement, int column) {
  Digest digest{};
  const std::span<const std::byte> bytes = statement.bytes(column);
  if (bytes.size() == digest.size()) std::memcpy(digest.data(), bytes.data(), bytes.size());
  return digest;
}

Digest sumOfFact(std::string_view name, std::string_view value) {
  return DigestBuilder().add(name).add(value).finish();
}

/// The canonical name of a trusted directory, created if `access` allows it; `directory` itself if it does not exist.
/// Symbolic links in the given name are allowed: the trust check applies to the canonical name.
Result<std::filesystem::path> placeOf(const std::filesystem::path& directory, StoreAccess access) {
  const auto refused = [&](const std::string& why) {
    return Error{Errc::kMachine, fmt::format("cannot use the cache directory {}: {}", directory.string(), why), {}};
  };
  std::error_code making, failure;
  if (access == StoreAccess::kUse) making = makePrivateDirectories(directory);
  const std::filesystem::file_status status = std::filesystem::status(directory, failure);
  if (status.type() == std::filesystem::file_type::not_found) {
    if (access == StoreAccess::kUse) return refused(making.message());
    return directory;
  }
  if (failure) return refused(failure.message());
  if (!std::filesystem::is_directory(status)) return refused("it is no directory");
  std::filesystem::path place = std::filesystem::canonical(directory, failure);
  if (failure) return refused(failure.message());
  if (Status trust = checkTrustOfDirectory(place); !trust) return std::move(trust).error();
  return place;
}

}  // namespace

/// Its functions throw SqliteFailure.
class DiskStore::State {
 public:
  State(std::filesystem::path file, std::uint64_t bound, StoreAccess access)
      : file_(std::move(file), access), bound_(bound) {}
  ~State();

  bool has(const KernelKey& key);
  std::optional<KernelImage> read(const KernelKey& key, std::vector<std::byte>& space);
  void write(const KernelKey& key, const KernelImage& image);
  std::optional<std::string> readFact(const std::string& name);
  void writeFact(const std::string& name, const std::string& value);
  Totals totals();
  std::vector<StoredImage> list();
  StoreCheck verify();
  std::uint64_t clear();

  std::uint64_t evictions() const noexcept { return evictions_; }
  std::uint64_t damaged() const noexcept { return damaged_ + file_.generation(); }
  StoreFile& file() noexcept { return file_; }

 private:
  std::optional<ImageRecord> find(const KernelKey& key, std::vector<std::byte>& space);
  void drop(const ImageRecord& record);
  void writeUses(SqliteFile& file);
  void makeRoom(SqliteFile& file, std::uint64_t bytes);
  std::string structure();

  StoreFile file_;
  const std::uint64_t bound_;
  std::atomic<std::uint64_t> evictions_ = 0, damaged_ = 0;
  std::mutex uses_mutex_;
  std::map<std::int64_t, std::int64_t> uses_;  ///< ids and times of uses not yet recorded on disk
};

DiskStore::State::~State() {
  constexpr int kWait = 50;
  if (uses_.empty() || file_.isForked()) return;
  try {
    file_.change([this](SqliteFile& file) { writeUses(file); }, kWait);
  } catch (const SqliteFailure&) {
    uses_.clear();  // best effort: a lost use only makes an image an earlier candidate for eviction
  } catch (const std::bad_alloc&) {
    uses_.clear();
  }
}

bool DiskStore::State::has(const KernelKey& key) {
  const StoreFile::Reader reader(file_);
  return reader->prepare("SELECT 1 FROM images WHERE digest = ?").bind(bytesOf(key.digest)).step();
}

std::optional<ImageRecord> DiskStore::State::find(const KernelKey& key, std::vector<std::byte>& space) {
  const StoreFile::Reader reader(file_);
  SqliteStatement statement = reader->prepare(
      "SELECT i.id, i.title, i.is_ptx, i.seconds, i.checksum, c.kernels, i.used,"
      "  typeof(c.code) = 'blob' AND length(c.code) <= i.bytes "
      "FROM images AS i LEFT JOIN codes AS c ON c.id = i.id WHERE i.digest = ?");
  if (!statement.bind(bytesOf(key.digest)).step()) return std::nullopt;
  ImageRecord record;
  record.id = statement.integer(0);
  record.key = {key.digest, statement.text(1)};
  record.image.is_ptx = statement.integer(2) != 0;
  record.image.seconds = statement.real(3);
  record.checksum = digestIn(statement, 4);
  record.facts = statement.text(5);
  record.used = statement.integer(6);
  // Without code the checksum does not match; isSound() detects that later.
  if (statement.integer(7) != 0) {
    reader->readBlob("codes", "code", record.id, space);
    record.image.code = std::move(space);
  }
  return record;
}

/// Removes an image that fails its checksum; best effort.
void DiskStore::State::drop(const ImageRecord& record) {
  ++damaged_;
  try {
    file_.change([&](SqliteFile& file) {
      file.prepare("DELETE FROM images WHERE id = ? AND digest = ?")
          .bind(record.id)
          .bind(bytesOf(record.key.digest))
          .run();
    });
  } catch (const SqliteFailure& failure) {
    if (!failure.isProtection()) throw;
  }
}

std::optional<KernelImage> DiskStore::State::read(const KernelKey& key, std::vector<std::byte>& space) {
  std::optional<ImageRecord> record = find(key, space);
  if (!record) return std::nullopt;
  if (!record->isSound()) {
    drop(*record);
    return std::nullopt;
  }
  const std::int64_t time = now();
  if (time - record->used > kUseMilliseconds) {
    const std::scoped_lock lock(uses_mutex_);
    uses_[record->id] = time;
  }
  return std::move(record->image);
}

void DiskStore::State::writeUses(SqliteFile& file) {
  const std::scoped_lock lock(uses_mutex_);
  for (const auto& [id, time] : uses_) {
    file.prepare("UPDATE images SET used = max(used, ?) WHERE id = ?").bind(time).bind(id).run();
  }
  uses_.clear();
}

void DiskStore::State::makeRoom(SqliteFile& file, std::uint64_t bytes) {
  std::uint64_t total = unsignedOf(file.number("SELECT sum(bytes) FROM images"));
  while (total + bytes > bound_) {
    SqliteStatement statement =
        file.prepare("DELETE FROM images WHERE id = (SELECT id FROM images ORDER BY used, id LIMIT 1) RETURNING bytes");
    if (!statement.step()) return;
    total -= std::min(total, unsignedOf(statement.integer(0)));
    statement.run();
    ++evictions_;
  }
}

void DiskStore::State::write(const KernelKey& key, const KernelImage& image) {
  const std::string facts = textOfFacts(image.kernels);
  const std::uint64_t bytes = image.code.size() + facts.size();
  if (bytes > bound_) return;
  const Digest sum = checksumOf(key, image, facts);
  file_.change([&](SqliteFile& file) {
    writeUses(file);
    if (file.prepare("SELECT 1 FROM images WHERE digest = ?").bind(bytesOf(key.digest)).step()) return;
    makeRoom(file, bytes);
    file.prepare(
            "INSERT INTO images (digest, title, is_ptx, seconds, bytes, checksum, used) VALUES (?, ?, ?, ?, ?, ?, ?)")
        .bind(bytesOf(key.digest))
        .bind(std::string_view(key.title))
        .bind(std::int64_t{image.is_ptx})
        .bind(image.seconds)
        .bind(static_cast<std::int64_t>(bytes))
        .bind(bytesOf(sum))
        .bind(now())
        .run();
    file.prepare("INSERT OR REPLACE INTO codes (id, kernels, code) VALUES (last_insert_rowid(), ?, ?)")
        .bind(std::string_view(facts))
        .bind(image.code)
        .run();
  });
}

std::optional<std::string> DiskStore::State::readFact(const std::string& name) {
  const StoreFile::Reader reader(file_);
  SqliteStatement statement = reader->prepare("SELECT value, checksum FROM facts WHERE name = ?");
  if (!statement.bind(std::string_view(name)).step()) return std::nullopt;
  std::string value = statement.text(0);
  if (sumOfFact(name, value) == digestIn(statement, 1)) return value;
  ++damaged_;
  return std::nullopt;
}

void DiskStore::State::writeFact(const std::string& name, const std::string& value) {
  const Digest sum = sumOfFact(name, value);
  file_.change([&](SqliteFile& file) {
    file.prepare("INSERT OR REPLACE INTO facts (name, value, checksum) VALUES (?, ?, ?)")
        .bind(std::string_view(name))
        .bind(std::string_view(value))
        .bind(bytesOf(sum))
        .run();
  });
}

DiskStore::Totals DiskStore::State::totals() {
  const StoreFile::Reader reader(file_);
  SqliteStatement statement = reader->prepare("SELECT count(*), sum(bytes), sum(seconds) FROM images");
  statement.step();
  return {unsignedOf(statement.integer(0)), unsignedOf(statement.integer(1)), statement.real(2)};
}

std::vector<StoredImage> DiskStore::State::list() {
  const StoreFile::Reader reader(file_);
  SqliteStatement statement = reader->prepare(
      "SELECT i.digest, i.title, i.bytes, i.is_ptx, c.kernels, i.seconds, i.used FROM images AS i LEFT JOIN codes AS c "
      "ON c.id = i.id ORDER BY i.used DESC, i.id DESC");
  std::vector<StoredImage> images;
  while (statement.step()) {
    images.push_back({{digestIn(statement, 0), statement.text(1)},
                      unsignedOf(statement.integer(2)),
                      statement.integer(3) != 0,
                      factsIn(statement.text(4)).value_or(std::vector<KernelFacts>()),
                      statement.real(5),
                      statement.integer(6) / 1000});
  }
  return images;
}

/// The result of SQLite's integrity check; "ok" if the file is sound.
std::string DiskStore::State::structure() {
  const StoreFile::Reader reader(file_);
  SqliteStatement statement = reader->prepare("PRAGMA integrity_check(1)");
  return statement.step() ? statement.text(0) : "";
}

StoreCheck DiskStore::State::verify() {
  const std::uint64_t generation = file_.generation();
  StoreCheck found;
  std::vector<KernelKey> keys;
  bool damaged_file = false;
  try {
    for (const StoredImage& image : list()) keys.push_back(image.key);
    damaged_file = structure() != "ok";
  } catch (const SqliteFailure& failure) {
    if (!failure.isDamage()) throw;
    damaged_file = true;
  }
  found.remade = damaged_file || generation != 0;
  if (damaged_file) {
    file_.remake(generation);
    found.images = keys.size();
    for (KernelKey& key : keys) found.bad.push_back(std::move(key.title));
    return found;
  }
  std::vector<std::byte> space;
  for (const KernelKey& key : keys) {
    std::optional<ImageRecord> record = find(key, space);
    if (!record) continue;  // another process has removed it
    ++found.images;
    if (!record->isSound()) {
      found.bad.push_back(key.title);
      drop(*record);
    }
    space = std::move(record->image.code);
  }
  return found;
}

std::uint64_t DiskStore::State::clear() {
  const std::uint64_t bytes = totals().bytes;
  file_.change([](SqliteFile& file) {
    file.execute("DELETE FROM images");
    file.execute("DELETE FROM facts");
  });
  file_.compact();
  return bytes;
}

DiskStore::DiskStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskStore::~DiskStore() = default;

Result<std::unique_ptr<DiskStore>> DiskStore::open(const std::filesystem::path& directory, std::uint64_t bound,
                                                   StoreAccess access) {
  const auto place = placeOf(directory, access);
  if (!place) return place.error();
  auto state = std::make_unique<State>(*place / kFileName, bound, access);
  const auto opened = state->file().attempt([&] { return StoreFile::Reader(state->file()), std::monostate(); });
  if (!opened) return opened.error();
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(state)));
}

Result<bool> DiskStore::has(const KernelKey& key) {
  return state_->file().attempt([&] { return state_->has(key); });
}

Result<std::optional<KernelImage>> DiskStore::read(const KernelKey& key, std::vector<std::byte> space) {
  return state_->file().attempt([&] { return state_->read(key, space); });
}

Status DiskStore::write(const KernelKey& key, const KernelImage& image) {
  return state_->file().attempt([&] { return state_->write(key, image), std::monostate(); });
}

Result<std::optional<std::string>> DiskStore::readFact(const std::string& name) {
  return state_->file().attempt([&] { return state_->readFact(name); });
}

Status DiskStore::writeFact(const std::string& name, const std::string& value) {
  return state_->file().attempt([&] { return state_->writeFact(name, value), std::monostate(); });
}

Result<DiskStore::Totals> DiskStore::totals() {
  return state_->file().attempt([&] { return state_->totals(); });
}

Result<std::vector<StoredImage>> DiskStore::list() {
  return state_->file().attempt([&] { return state_->list(); });
}

Result<StoreCheck> DiskStore::verify() {
  return state_->file().attempt([&] { return state_->verify(); });
}

Result<std::uint64_t> DiskStore::clear() {
  return state_->file().attempt([&] { return state_->clear(); });
}

std::uint64_t DiskStore::evictions() const noexcept { return state_->evictions(); }
std::uint64_t DiskStore::damaged() const noexcept { return state_->damaged(); }

}  // namespace srjit
