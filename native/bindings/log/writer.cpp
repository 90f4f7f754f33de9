// The writer, its faults, and the points that Python code passes. See holdfast/log/writer.hpp.
#include "holdfast/log/writer.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/base/gil.hpp"
#include "bindings/base/records.hpp"
#include "bindings/log/log.hpp"
#include "bindings/log/store_points.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

Record report_record;

SyncMode sync_mode(const std::string& name) {
    if (name == "group") return SyncMode::group;
    if (name == "always") return SyncMode::always;
    if (name == "os") return SyncMode::os;
    throw Error(Code::misuse, "sync is group, always or os, not " + name);
}

class WriterObject {
 public:
    WriterObject(const LogObject& log, const std::string& directory, const std::string& sync,
                 const nb::bytes& incarnation)
        : writer_(new Writer(log.log.queue(), log.log.next_d() - 1, directory, sync_mode(sync),
                             incarnation_of(incarnation))) {}
    WriterObject(const WriterObject&) = delete;
    ~WriterObject() {
        GilRelease release;  // the thread may be in the middle of a round
        writer_.reset();
    }

    int fileno() const { return writer_->event_fd(); }
    void use_journal(int fd, u64 offset) { writer_->use_journal(fd, offset); }
    void start() { writer_->start(); }
    void stop(bool flush) {
        GilRelease release;
        writer_->stop(flush);
    }
    void set_stable(u64 view, u64 index) { writer_->set_stable(view, index); }
    void resume() { writer_->resume(); }

    nb::object poll() {
        const WriterReport report = writer_->poll();
        Row row(report_record);
        row.add(number(report.durable_d));
        row.add(number(report.journal_d));
        row.add(number(report.journal_offset));
        row.add(number(report.rounds));
        if (report.failure) {
            const std::string_view op = io_name(report.failure.op);
            row.add(nb::make_tuple(nb::str(op.data(), op.size()), report.failure.error,
                                   report.failure.what)
                        .release()
                        .ptr());
        } else {
            row.add(Py_NewRef(Py_None));
        }
        row.add(number(report.journals));
        row.add(number(report.journal_first_d));
        row.add(number(report.journal_bytes));
        return row.take();
    }

    nb::list ledgers(std::size_t limit) {
        writer_->require_here();
        nb::list out;
        for (const UnsyncedLedger& each : writer_->ledgers().unsynced(limit))
            out.append(nb::make_tuple(each.ledger, each.data, each.index, each.size));
        return out;
    }
    void synced(u64 ledger, u64 size) {
        writer_->require_here();
        writer_->ledgers().synced(ledger, size);
    }
    void forget(u64 ledger) {
        writer_->require_here();
        writer_->ledgers().forget(ledger);
    }
    int open_data(u64 ledger) {
        writer_->require_here();
        return writer_->ledgers().open_data(ledger);
    }
    u64 use_generation(u64 ledger, u32 generation) {
        writer_->require_here();
        GilRelease release;
        return writer_->ledgers().use_generation(ledger, generation);
    }

 private:
    WriterPointer writer_;
};

void arm_named_fault(const std::string& op, u64 countdown, int error, u64 times) {
    const auto mask = io_mask(op);
    if (!mask) throw Error(Code::misuse, "there is no call named " + op + " to fail");
    if (error == 0) throw Error(Code::misuse, "a fault needs an errno, or a negative size");
    arm_fault(*mask, countdown, error, times);
}

void pass(const std::string& point) {
    if (!any_armed()) return;
    const auto found = point_by_name<WriterPoint, StorePoint>(point);
    if (!found) throw Error(Code::misuse, "there is no point named " + point);
    at(*found);
}

nb::list log_points() {
    nb::list out;
    each_point<WriterPoint, StorePoint>(
        [&](Point point) { out.append(nb::str(point.name().data(), point.name().size())); });
    return out;
}

}  // namespace

void bind_writer(nb::module_& module) {
    report_record.make(module, "Report",
                       {"durable_d", "journal_d", "journal_offset", "rounds", "error", "journals",
                        "journal_first_d", "journal_bytes"});
    nb::class_<WriterObject>(module, "Writer")
        .def(nb::init<const LogObject&, const std::string&, const std::string&, const nb::bytes&>(),
             nb::arg("log"), nb::arg("directory"), nb::arg("sync") = "group",
             nb::arg("incarnation") = nb::bytes("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16))
        .def("fileno", &WriterObject::fileno)
        .def("use_journal", &WriterObject::use_journal, nb::arg("fd"), nb::arg("offset"))
        .def("start", &WriterObject::start)
        .def("stop", &WriterObject::stop, nb::arg("flush") = true)
        .def("set_stable", &WriterObject::set_stable, nb::arg("view"), nb::arg("index"))
        .def("poll", &WriterObject::poll)
        .def("resume", &WriterObject::resume)
        .def("ledgers", &WriterObject::ledgers, nb::arg("limit") = 256)
        .def("synced", &WriterObject::synced, nb::arg("ledger"), nb::arg("size"))
        .def("forget", &WriterObject::forget, nb::arg("ledger"))
        .def("open_data", &WriterObject::open_data, nb::arg("ledger"))
        .def("use_generation", &WriterObject::use_generation, nb::arg("ledger"),
             nb::arg("generation"));
    module.def("arm_fault", &arm_named_fault, nb::arg("op"), nb::arg("countdown") = 1,
               nb::arg("error") = EIO, nb::arg("times") = 1);
    nb::list plan;
    for (const RoundStep step : kRoundPlan)
        plan.append(nb::str(step_name(step).data(), step_name(step).size()));
    module.attr("ROUND_PLAN") = nb::tuple(plan);
    module.def("disarm_fault", &disarm_fault);
    module.def("faults_fired", &faults_fired);
    module.def("at", &pass, nb::arg("point"));
    module.def("log_points", &log_points);
}

}  // namespace holdfast::bindings
