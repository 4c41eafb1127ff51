#include "runtime/disk_store.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/image_record.h"
#include "runtime/sqlite_file.h"

namespace srjit {
namespace {

constexpr int kBusyMilliseconds = 2000;
// A use is written down if the last one was this long ago, so that programs run again and again only read.
constexpr std::int64_t kUseMilliseconds = 600'000;
constexpr std::size_t kIdleReaders = 16;
constexpr std::int64_t kApplicationId = 0x73726a74;
constexpr std::int64_t kSchemaVersion = 1;

constexpr const char* kSettings =
    "PRAGMA secure_delete = OFF; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 512;"
    "PRAGMA journal_size_limit = 16777216";
// Pages of 32 KiB: half a megabyte is read in less than half the time that pages of 4 KiB take.
constexpr const char* kForm = "PRAGMA page_size = 32768; PRAGMA auto_vacuum = NONE";
// Code is apart from what changes, since an update writes all of a row; `by_use` has all that eviction reads.
constexpr const char* kSchema =
    "CREATE TABLE images (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, title TEXT NOT NULL,"
    "  is_ptx INTEGER NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL, checksum BLOB NOT NULL,"
    "  used INTEGER NOT NULL);"
    "CREATE INDEX by_use ON images (used, bytes);"
    "CREATE TABLE codes (id INTEGER PRIMARY KEY, kernels TEXT NOT NULL, code BLOB NOT NULL);"
    "CREATE TRIGGER drop_code AFTER DELETE ON images BEGIN DELETE FROM codes WHERE id = old.id; END;"
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;"
    "PRAGMA application_id = 0x73726a74; PRAGMA user_version = 1";

bool isOurs(SqliteFile& file) {
  return file.number("PRAGMA application_id") == kApplicationId && file.number("PRAGMA user_version") == kSchemaVersion;
}

/// Gives a file that is empty, or not ours, its schema.
void giveSchema(SqliteFile& file) {
  file.execute("BEGIN");
  const bool ours = isOurs(file);
  const bool empty = file.number("SELECT count(*) FROM sqlite_schema") == 0;
  file.execute("COMMIT");
  if (ours) return;
  if (empty) {
    file.execute(kForm);
  } else {
    file.empty(kForm);
  }
  file.execute("PRAGMA journal_mode = WAL");
  SqliteTransaction transaction(file);
  if (isOurs(file)) return;  // another process was faster
  file.execute(kSchema);
  transaction.commit();
}

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

}  // namespace

/// Its functions throw SqliteFailure.
class DiskStore::State {
 public:
  /// A connection for reading, while it lives.
  class Reader {
   public:
    explicit Reader(State& state) : state_(state), generation_(state.generation_), file_(state.takeReader()) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { state_.giveBack(std::move(file_), generation_); }
    SqliteFile* operator->() const { return file_.get(); }

   private:
    State& state_;
    const std::uint64_t generation_;
    std::unique_ptr<SqliteFile> file_;
  };

  State(std::filesystem::path file, std::uint64_t bound) : file_(std::move(file)), bound_(bound) {
    readers_.reserve(kIdleReaders);
  }
  ~State();

  template <class Body>
  auto attempt(const Body& body) -> Result<decltype(body())>;

  bool has(const KernelKey& key);
  std::optional<KernelImage> read(const KernelKey& key);
  void write(const KernelKey& key, const KernelImage& image);
  std::optional<std::string> readFact(const std::string& name);
  void writeFact(const std::string& name, const std::string& value);
  Totals totals();
  std::vector<StoredImage> list();
  StoreCheck verify();
  std::uint64_t clear();

  std::atomic<std::uint64_t> evictions = 0, damaged = 0;

 private:
  std::unique_ptr<SqliteFile> connectOnce();
  std::unique_ptr<SqliteFile> connect();
  std::unique_ptr<SqliteFile> takeReader();
  void giveBack(std::unique_ptr<SqliteFile> file, std::uint64_t generation) noexcept;
  SqliteFile& writer();
  template <class Body>
  void change(const Body& body);
  void remake(std::uint64_t generation);
  std::optional<ImageRecord> find(const KernelKey& key);
  void drop(const ImageRecord& record);
  void writeUses(SqliteFile& file);
  void makeRoom(SqliteFile& file, std::uint64_t bytes);
  std::string structure();

  const std::filesystem::path file_;
  const std::uint64_t bound_;
  const pid_t process_ = getpid();
  std::atomic<bool> read_only_ = false;
  std::atomic<std::uint64_t> generation_ = 0;  ///< how often the file was made anew
  // Connections of their own, so that threads read at the same time and do not wait for writing.
  std::mutex readers_mutex_;
  std::vector<std::unique_ptr<SqliteFile>> readers_;  ///< idle ones
  std::mutex write_mutex_;
  std::unique_ptr<SqliteFile> writer_;  ///< made when it is first needed
  bool was_busy_ = false;               ///< the last change waited in vain; under write_mutex_
  std::mutex uses_mutex_;
  std::map<std::int64_t, std::int64_t> uses_;  ///< ids and times that are not written down yet
};

DiskStore::State::~State() {
  if (uses_.empty() || getpid() != process_) return;
  try {
    SqliteFile& file = writer();
    file.waitWhenBusy(50);
    SqliteTransaction transaction(file);
    writeUses(file);
    transaction.commit();
  } catch (const SqliteFailure&) {
    uses_.clear();  // then the images look older than they are
  } catch (const std::bad_alloc&) {
    uses_.clear();
  }
}

/// Runs `body`; if the file is damaged, makes it anew and runs it again.
template <class Body>
auto DiskStore::State::attempt(const Body& body) -> Result<decltype(body())> {
  if (getpid() != process_) {
    return Error{Errc::kMachine, fmt::format("{} was opened before this process was forked", file_.string()), {}};
  }
  const std::uint64_t generation = generation_;
  try {
    return body();
  } catch (const SqliteFailure& failure) {
    if (!failure.isDamage() || read_only_) return failure.error;
  }
  try {
    remake(generation);
    return body();
  } catch (const SqliteFailure& failure) {
    return failure.error;
  }
}

std::unique_ptr<SqliteFile> DiskStore::State::connectOnce() {
  std::error_code ignored;
  try {
    auto file = std::make_unique<SqliteFile>(file_, SqliteFile::Access::kWrite);
    file->waitWhenBusy(kBusyMilliseconds);
    read_only_ = file->readOnly();
    if (!read_only_) {
      file->execute(kSettings);
      giveSchema(*file);
    } else if (!isOurs(*file)) {
      file->refuseToWrite("renew the schema of");
    }
    return file;
  } catch (const SqliteFailure& failure) {
    if (!failure.isProtection() || !std::filesystem::is_regular_file(file_, ignored)) throw;
  }
  auto file = std::make_unique<SqliteFile>(file_, SqliteFile::Access::kUnchanging);
  if (!isOurs(*file)) file->refuseToWrite("renew the schema of");
  read_only_ = true;
  return file;
}

// SQLite does not wait for locks in every step of making a database.
std::unique_ptr<SqliteFile> DiskStore::State::connect() {
  constexpr int kPause = 5;
  for (int waited = 0;; waited += kPause) {
    try {
      return connectOnce();
    } catch (const SqliteFailure& failure) {
      if (!failure.isBusy() || waited >= kBusyMilliseconds) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kPause));
  }
}

std::unique_ptr<SqliteFile> DiskStore::State::takeReader() {
  {
    const std::scoped_lock lock(readers_mutex_);
    if (!readers_.empty()) {
      auto file = std::move(readers_.back());
      readers_.pop_back();
      return file;
    }
  }
  return connect();
}

void DiskStore::State::giveBack(std::unique_ptr<SqliteFile> file, std::uint64_t generation) noexcept {
  const std::scoped_lock lock(readers_mutex_);
  if (generation == generation_ && readers_.size() < readers_.capacity()) readers_.push_back(std::move(file));
}

SqliteFile& DiskStore::State::writer() {
  if (!writer_) writer_ = connect();
  return *writer_;
}

/// Runs `body` with the writer in a transaction. After waiting in vain for another process, the next changes hardly
/// wait.
template <class Body>
void DiskStore::State::change(const Body& body) {
  const std::scoped_lock lock(write_mutex_);
  SqliteFile& file = writer();
  if (read_only_) file.refuseToWrite("write");
  file.waitWhenBusy(was_busy_ ? 10 : kBusyMilliseconds);
  try {
    SqliteTransaction transaction(file);
    body(file);
    transaction.commit();
    was_busy_ = false;
  } catch (const SqliteFailure& failure) {
    was_busy_ = failure.isBusy();
    throw;
  }
}

/// Empties the file, unless another thread has done so since `generation`.
void DiskStore::State::remake(std::uint64_t generation) {
  const std::scoped_lock lock(write_mutex_, readers_mutex_);
  if (generation_ != generation) return;
  ++damaged;
  ++generation_;
  writer_.reset();
  readers_.clear();
  SqliteFile file(file_, SqliteFile::Access::kWrite);
  file.waitWhenBusy(kBusyMilliseconds);
  file.empty(kForm);
}

bool DiskStore::State::has(const KernelKey& key) {
  const Reader reader(*this);
  return reader->prepare("SELECT 1 FROM images WHERE digest = ?").bind(bytesOf(key.digest)).step();
}

std::optional<ImageRecord> DiskStore::State::find(const KernelKey& key) {
  const Reader reader(*this);
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
  // Without code the checksum is wrong, which is found out later.
  if (statement.integer(7) != 0) record.image.code = reader->readBlob("codes", "code", record.id);
  return record;
}

/// Removes what does not agree with its checksum.
void DiskStore::State::drop(const ImageRecord& record) {
  ++damaged;
  if (read_only_) return;
  change([&](SqliteFile& file) {
    file.prepare("DELETE FROM images WHERE id = ? AND digest = ?")
        .bind(record.id)
        .bind(bytesOf(record.key.digest))
        .run();
  });
}

std::optional<KernelImage> DiskStore::State::read(const KernelKey& key) {
  std::optional<ImageRecord> record = find(key);
  if (!record) return std::nullopt;
  if (!record->isSound()) {
    drop(*record);
    return std::nullopt;
  }
  const std::int64_t time = now();
  if (!read_only_ && time - record->used > kUseMilliseconds) {
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
    ++evictions;
  }
}

void DiskStore::State::write(const KernelKey& key, const KernelImage& image) {
  const std::string facts = textOfFacts(image.kernels);
  const std::uint64_t bytes = image.code.size() + facts.size();
  if (bytes > bound_) return;
  const Digest sum = checksumOf(key, image, facts);
  change([&](SqliteFile& file) {
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
  const Reader reader(*this);
  SqliteStatement statement = reader->prepare("SELECT value, checksum FROM facts WHERE name = ?");
  if (!statement.bind(std::string_view(name)).step()) return std::nullopt;
  std::string value = statement.text(0);
  if (sumOfFact(name, value) == digestIn(statement, 1)) return value;
  ++damaged;
  return std::nullopt;
}

void DiskStore::State::writeFact(const std::string& name, const std::string& value) {
  const Digest sum = sumOfFact(name, value);
  change([&](SqliteFile& file) {
    file.prepare("INSERT OR REPLACE INTO facts (name, value, checksum) VALUES (?, ?, ?)")
        .bind(std::string_view(name))
        .bind(std::string_view(value))
        .bind(bytesOf(sum))
        .run();
  });
}

DiskStore::Totals DiskStore::State::totals() {
  const Reader reader(*this);
  SqliteStatement statement = reader->prepare("SELECT count(*), sum(bytes), sum(seconds) FROM images");
  statement.step();
  return {unsignedOf(statement.integer(0)), unsignedOf(statement.integer(1)), statement.real(2)};
}

std::vector<StoredImage> DiskStore::State::list() {
  const Reader reader(*this);
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

/// What SQLite finds wrong with the file, "ok" if nothing.
std::string DiskStore::State::structure() {
  const Reader reader(*this);
  SqliteStatement statement = reader->prepare("PRAGMA integrity_check(1)");
  return statement.step() ? statement.text(0) : "";
}

StoreCheck DiskStore::State::verify() {
  const std::uint64_t generation = generation_;
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
    if (read_only_) Reader(*this)->refuseToWrite("repair");
    remake(generation);
    found.images = keys.size();
    for (KernelKey& key : keys) found.bad.push_back(std::move(key.title));
    return found;
  }
  for (const KernelKey& key : keys) {
    std::optional<ImageRecord> record = find(key);
    if (!record) continue;  // another process has removed it
    ++found.images;
    if (record->isSound()) continue;
    found.bad.push_back(key.title);
    drop(*record);
  }
  return found;
}

std::uint64_t DiskStore::State::clear() {
  const std::uint64_t bytes = totals().bytes;
  change([](SqliteFile& file) {
    file.execute("DELETE FROM images");
    file.execute("DELETE FROM facts");
  });
  const std::scoped_lock lock(write_mutex_);
  writer().tryTo("VACUUM");
  writer().tryTo("PRAGMA wal_checkpoint(TRUNCATE)");
  return bytes;
}

DiskStore::DiskStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskStore::~DiskStore() = default;

Result<std::unique_ptr<DiskStore>> DiskStore::open(const std::filesystem::path& directory, std::uint64_t bound) {
  std::error_code failure;
  if (std::filesystem::create_directories(directory, failure)) {
    // Code is loaded from here: it is nobody else's to write.
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, failure);
  }
  if (!std::filesystem::is_directory(directory, failure)) {
    const std::string why = failure ? failure.message() : "it is no directory";
    return Error{Errc::kMachine, fmt::format("cannot use the cache directory {}: {}", directory.string(), why), {}};
  }
  auto state = std::make_unique<State>(directory / kFileName, bound);
  const auto opened = state->attempt([&] { return DiskStore::State::Reader(*state), std::monostate(); });
  if (!opened) return opened.error();
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(state)));
}

Result<bool> DiskStore::has(const KernelKey& key) {
  return state_->attempt([&] { return state_->has(key); });
}

Result<std::optional<KernelImage>> DiskStore::read(const KernelKey& key) {
  return state_->attempt([&] { return state_->read(key); });
}

Status DiskStore::write(const KernelKey& key, const KernelImage& image) {
  return state_->attempt([&] { return state_->write(key, image), std::monostate(); });
}

Result<std::optional<std::string>> DiskStore::readFact(const std::string& name) {
  return state_->attempt([&] { return state_->readFact(name); });
}

Status DiskStore::writeFact(const std::string& name, const std::string& value) {
  return state_->attempt([&] { return state_->writeFact(name, value), std::monostate(); });
}

Result<DiskStore::Totals> DiskStore::totals() {
  return state_->attempt([&] { return state_->totals(); });
}

Result<std::vector<StoredImage>> DiskStore::list() {
  return state_->attempt([&] { return state_->list(); });
}

Result<StoreCheck> DiskStore::verify() {
  return state_->attempt([&] { return state_->verify(); });
}

Result<std::uint64_t> DiskStore::clear() {
  return state_->attempt([&] { return state_->clear(); });
}

std::uint64_t DiskStore::evictions() const noexcept { return state_->evictions; }
std::uint64_t DiskStore::damaged() const noexcept { return state_->damaged; }

}  // namespace srjit
