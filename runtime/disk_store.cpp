#include "runtime/disk_store.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/sqlite_file.h"

namespace srjit {
namespace {

constexpr int kBusyMilliseconds = 2000;
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
  file.execute(kForm);
  if (!empty) file.empty();
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

std::string textOf(const std::vector<KernelFacts>& kernels) {
  using nlohmann::json;
  json rows = json::array();
  for (const KernelFacts& facts : kernels) {
    rows.push_back({facts.name, facts.registers, facts.stack_bytes, facts.spill_store_bytes, facts.spill_load_bytes});
  }
  return rows.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<std::vector<KernelFacts>> kernelsOf(const std::string& text) {
  const nlohmann::json rows = nlohmann::json::parse(text, nullptr, false);
  if (!rows.is_array()) return std::nullopt;
  std::vector<KernelFacts> kernels;
  for (const nlohmann::json& row : rows) {
    if (!row.is_array() || row.size() != 5 || !row[0].is_string()) return std::nullopt;
    for (std::size_t i = 1; i < 5; ++i) {
      if (!row[i].is_number_unsigned()) return std::nullopt;
    }
    kernels.push_back({row[0].get<std::string>(), row[1].get<unsigned>(), row[2].get<unsigned>(),
                       row[3].get<unsigned>(), row[4].get<unsigned>()});
  }
  return kernels;
}

/// The checksum of an image, over all that is stored of it; `kernels` is textOf() its kernels.
Digest sumOf(const KernelKey& key, const KernelImage& image, std::string_view kernels) {
  DigestBuilder digest;
  digest.add(bytesOf(key.digest)).add(key.title).add(image.is_ptx).add(std::bit_cast<std::uint64_t>(image.seconds));
  return digest.add(kernels).add(image.code).finish();
}

Digest sumOfFact(std::string_view name, std::string_view value) {
  return DigestBuilder().add(name).add(value).finish();
}

/// An image as it stands in the tables.
struct Row {
  std::int64_t id = 0;
  KernelKey key;
  std::string kernels;
  KernelImage image;
  Digest checksum{};

  /// Whether it is what was written; gives the image its kernels.
  bool isSound() {
    if (sumOf(key, image, kernels) != checksum) return false;
    auto parsed = kernelsOf(kernels);
    if (parsed) image.kernels = std::move(*parsed);
    return parsed.has_value();
  }
};

}  // namespace

/// Its functions throw SqliteFailure.
class DiskStore::State {
 public:
  State(std::filesystem::path file, std::uint64_t bound) : file_(std::move(file)), bound_(bound) {}
  ~State();

  template <class Body>
  auto attempt(const Body& body) -> Result<decltype(body())>;

  void openReader();
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
  SqliteFile& reader();
  SqliteFile& writer();
  template <class Body>
  void change(const Body& body);
  void remake(std::uint64_t generation);
  std::optional<Row> find(const KernelKey& key);
  void drop(const Row& row);
  void writeUses(SqliteFile& file);
  void makeRoom(SqliteFile& file, std::uint64_t bytes);
  std::string structure();

  const std::filesystem::path file_;
  const std::uint64_t bound_;
  const pid_t process_ = getpid();
  std::atomic<bool> read_only_ = false;
  std::atomic<std::uint64_t> generation_ = 0;  ///< how often the file was made anew
  // Two connections, so that reading does not wait for writing. One that is missing is made at its next use.
  std::mutex write_mutex_, read_mutex_;
  std::unique_ptr<SqliteFile> writer_, reader_;
  bool was_busy_ = false;  ///< the last change waited in vain; under write_mutex_
  std::mutex uses_mutex_;
  std::map<std::int64_t, std::int64_t> uses_;  ///< ids and times that are not written down yet
};

DiskStore::State::~State() {
  if (getpid() != process_) {
    // Closing would touch the parent's locks.
    static_cast<void>(writer_.release());
    static_cast<void>(reader_.release());
    return;
  }
  if (uses_.empty()) return;
  try {
    SqliteFile& file = writer();
    file.waitWhenBusy(50);
    SqliteTransaction transaction(file);
    writeUses(file);
    transaction.commit();
  } catch (const SqliteFailure&) {  // then the images look older than they are
  } catch (const std::bad_alloc&) {
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

SqliteFile& DiskStore::State::reader() {
  if (!reader_) reader_ = connect();
  return *reader_;
}

SqliteFile& DiskStore::State::writer() {
  if (!writer_) writer_ = connect();
  return *writer_;
}

void DiskStore::State::openReader() {
  const std::scoped_lock lock(read_mutex_);
  reader();
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
  const std::scoped_lock lock(write_mutex_, read_mutex_);
  if (generation_ != generation) return;
  ++damaged;
  ++generation_;
  writer_.reset();
  reader_.reset();
  {
    SqliteFile file(file_, SqliteFile::Access::kWrite);
    file.waitWhenBusy(kBusyMilliseconds);
    file.execute(kSettings);
    file.execute(kForm);
    file.empty();
  }
  reader();
}

std::optional<Row> DiskStore::State::find(const KernelKey& key) {
  const std::scoped_lock lock(read_mutex_);
  SqliteStatement statement = reader().prepare(
      "SELECT i.id, i.title, i.is_ptx, i.seconds, i.checksum, c.kernels, c.code FROM images AS i LEFT JOIN codes AS c "
      "ON c.id = i.id WHERE i.digest = ?");
  if (!statement.bind(bytesOf(key.digest)).step()) return std::nullopt;
  Row row;
  row.id = statement.integer(0);
  row.key = {key.digest, statement.text(1)};
  row.image.is_ptx = statement.integer(2) != 0;
  row.image.seconds = statement.real(3);
  row.checksum = digestIn(statement, 4);
  row.kernels = statement.text(5);
  const std::span<const std::byte> code = statement.bytes(6);
  row.image.code.assign(code.begin(), code.end());
  return row;
}

/// Removes what does not agree with its checksum.
void DiskStore::State::drop(const Row& row) {
  ++damaged;
  if (read_only_) return;
  change([&](SqliteFile& file) {
    file.prepare("DELETE FROM images WHERE id = ? AND digest = ?").bind(row.id).bind(bytesOf(row.key.digest)).run();
  });
}

std::optional<KernelImage> DiskStore::State::read(const KernelKey& key) {
  std::optional<Row> row = find(key);
  if (!row) return std::nullopt;
  if (!row->isSound()) {
    drop(*row);
    return std::nullopt;
  }
  if (!read_only_) {
    const std::scoped_lock lock(uses_mutex_);
    uses_[row->id] = now();
  }
  return std::move(row->image);
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
  const std::string kernels = textOf(image.kernels);
  const std::uint64_t bytes = image.code.size() + kernels.size();
  if (bytes > bound_) return;
  const Digest sum = sumOf(key, image, kernels);
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
        .bind(std::string_view(kernels))
        .bind(image.code)
        .run();
  });
}

std::optional<std::string> DiskStore::State::readFact(const std::string& name) {
  const std::scoped_lock lock(read_mutex_);
  SqliteStatement statement = reader().prepare("SELECT value, checksum FROM facts WHERE name = ?");
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
  const std::scoped_lock lock(read_mutex_);
  SqliteStatement statement = reader().prepare("SELECT count(*), sum(bytes), sum(seconds) FROM images");
  statement.step();
  return {unsignedOf(statement.integer(0)), unsignedOf(statement.integer(1)), statement.real(2)};
}

std::vector<StoredImage> DiskStore::State::list() {
  const std::scoped_lock lock(read_mutex_);
  SqliteStatement statement = reader().prepare(
      "SELECT i.digest, i.title, i.bytes, i.is_ptx, c.kernels, i.seconds, i.used FROM images AS i LEFT JOIN codes AS c "
      "ON c.id = i.id ORDER BY i.used DESC, i.id DESC");
  std::vector<StoredImage> images;
  while (statement.step()) {
    images.push_back({{digestIn(statement, 0), statement.text(1)},
                      unsignedOf(statement.integer(2)),
                      statement.integer(3) != 0,
                      kernelsOf(statement.text(4)).value_or(std::vector<KernelFacts>()),
                      statement.real(5),
                      statement.integer(6) / 1000});
  }
  return images;
}

/// What SQLite finds wrong with the file, "ok" if nothing.
std::string DiskStore::State::structure() {
  const std::scoped_lock lock(read_mutex_);
  SqliteStatement statement = reader().prepare("PRAGMA integrity_check(1)");
  return statement.step() ? statement.text(0) : "";
}

StoreCheck DiskStore::State::verify() {
  const std::uint64_t generation = generation_;
  StoreCheck found;
  std::vector<KernelKey> keys;
  try {
    for (const StoredImage& image : list()) keys.push_back(image.key);
    found.remade = structure() != "ok";
  } catch (const SqliteFailure& failure) {
    if (!failure.isDamage()) throw;
    found.remade = true;
  }
  if (found.remade) {
    if (read_only_) reader().refuseToWrite("repair");
    remake(generation);
    found.images = keys.size();
    for (KernelKey& key : keys) found.bad.push_back(std::move(key.title));
    return found;
  }
  for (const KernelKey& key : keys) {
    std::optional<Row> row = find(key);
    if (!row) continue;  // another process has removed it
    ++found.images;
    if (row->isSound()) continue;
    found.bad.push_back(key.title);
    drop(*row);
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
  const auto opened = state->attempt([&] {
    state->openReader();
    return std::monostate();
  });
  if (!opened) return opened.error();
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(state)));
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
