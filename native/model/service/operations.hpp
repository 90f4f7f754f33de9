// The operations of the service model's programs: the templates of the service, with ghosts in place of holds.
#pragma once

#include "model/service/setting.hpp"

namespace model {

class ServiceOperations : public Model {
 protected:
    explicit ServiceOperations(const ServiceConfig& config)
        : Model(ServiceSetting::region(config)), setting_(config) {
        setting_.declare(world);
    }

    using All = Elements<ModelMemory>;

    // Phases of operations that wait: listen, look, sleep. Of all: read what was taken; publish what was filled.
    enum : u8 { kStart, kLook, kSleep, kRead, kPublish };

    All make_elements(ModelMemory& memory) { return All(memory, setting_.plan, world.base()); }

    [[noreturn]] static void corrupt(const Fault& fault) {
        throw Violation("corrupt", text_of("an operation reports: ", fault.what, " at ",
                                           fault.position, " is ", fault.value));
    }

    bool program_step(int p, ServiceGhost& ghost, ModelMemory& memory) {
        const ServiceProgram& program = setting_.program(p);
        if (ghost.pc >= program.steps.size()) return false;
        const ServiceStep& step = program.steps[ghost.pc];
        All all = make_elements(memory);
        switch (step.act) {
            case ServiceAct::attach:
                attach(all, ghost, memory, program.slot);
                break;
            case ServiceAct::send:
                send(all, ghost, memory, step.id);
                break;
            case ServiceAct::lend:
                lend(all, ghost, memory, step.id);
                next(ghost);
                break;
            case ServiceAct::publish:
                publish(all, ghost);
                next(ghost);
                break;
            case ServiceAct::give_back:
                give_back(all, ghost);
                next(ghost);
                break;
            case ServiceAct::run:
                if (ghost.phase == kRead) read_request(ghost, memory);
                if (ghost.runs == 2 || !run(all, ghost)) next(ghost);
                break;
            case ServiceAct::wait_run:
                wait_run(all, ghost, memory);
                break;
            case ServiceAct::answer:
                answer(all, ghost, memory);
                next(ghost);
                break;
            case ServiceAct::subscribe:
                subscribe(all, ghost, program.slot, step.count);
                next(ghost);
                break;
            case ServiceAct::take:
                if (ghost.phase == kRead) {
                    if (read(ghost, memory)) next(ghost);
                } else if (!take(all, ghost, program.slot, step.count)) {
                    next(ghost);
                }
                break;
            case ServiceAct::wait_take:
                wait_take(all, ghost, memory, program.slot, step.count);
                break;
            case ServiceAct::release:
                if (ghost.held_count != 0) release(all, ghost, program.slot);
                next(ghost);
                break;
            case ServiceAct::unsubscribe:
                unsubscribe(all, ghost, program.slot);
                next(ghost);
                break;
            case ServiceAct::call:
                call(all, ghost, memory, program.slot, step.id);
                break;
            case ServiceAct::collect:
                if (ghost.ticket == 0 || collect(all, ghost, memory) || !step.persists) next(ghost);
                break;
            case ServiceAct::wait_collect:
                wait_collect(all, ghost, memory);
                break;
            case ServiceAct::withdraw:
                withdraw(all, ghost, memory, step.asks_kernel);
                next(ghost);
                break;
            case ServiceAct::reap:
                reap_all(all, program.slot);
                next(ghost);
                break;
        }
        return true;
    }

    static void next(ServiceGhost& ghost) {
        ghost.phase = kStart;
        ghost.bell = 0;
        ++ghost.pc;
    }

    // ---- all

    void attach(All& all, ServiceGhost& ghost, ModelMemory& memory, unsigned slot) {
        memory.await_byte(slot);
        if (slot == setting_.slots.provider()) {
            offer(all, ghost);
        } else {
            all.clear(slot);
        }
        next(ghost);
    }

    // As ProviderHold::clean.
    void offer(All& all, ServiceGhost& ghost) {
        if (setting_.samples() != 0) {
            SampleOrder order;
            if (!all[0].samples.start(order)) corrupt(all[0].samples.fault);
            keep_order(ghost, order, setting_.origin);
        }
        all[0].calls.clean();
    }

    void reap_all(All& all, unsigned me) {
        for (u32 slot = 0; slot <= setting_.slots.tracer(); ++slot) {
            if (slot != me) all.clear_if_dead(slot, [](u32) {});
        }
    }

    // ---- the provider

    void send(All& all, ServiceGhost& ghost, ModelMemory& memory, u32 id) {
        if (ghost.phase == kStart) {
            lend(all, ghost, memory, id);
            ghost.phase = kPublish;
        } else {
            publish(all, ghost);
            next(ghost);
        }
    }

    // V5: without reaping, a sample is there for each loan.
    void lend(All& all, ServiceGhost& ghost, ModelMemory& memory, u32 id) {
        SampleOrder order = order_of(ghost, setting_.origin);
        u32 sample = all[0].samples.allocate(order);
        if (sample == SampleOrder::kNone && setting_.has_tracer()) {
            all.clear_strays(0);
            sample = all[0].samples.allocate(order);
        }
        if (sample == SampleOrder::kNone)
            throw Violation("V5", "all logs are within their grants, and no sample is free");
        memory.plain_write(setting_.content(sample), id);
        ghost.lent[ghost.lent_count] = static_cast<u8>(sample);
        ghost.lent_id[ghost.lent_count++] = static_cast<u8>(id);
        keep_order(ghost, order, setting_.origin);
    }

    void publish(All& all, ServiceGhost& ghost) {
        if (ghost.lent_count == 0) return;
        SampleOrder order = order_of(ghost, setting_.origin);
        const u32 sample = ghost.lent[ghost.lent_count - 1u];
        const u8 id = ghost.lent_id[ghost.lent_count - 1u];
        const u32 trace = setting_.has_tracer() ? all[0].logs.granted(setting_.slots.tracer()) : 0;
        const u64 number = all[0].samples.publish(order, sample, id, trace);
        if (number == 0) {  // the numbers are used up, and the loan stays
            if (order.next <= kSequenceMax) throw Violation("limit", "a number was left");
            give_back(all, ghost);
            return;
        }
        if (number > kSequenceMax) throw Violation("limit", "a number beyond the last one");
        if (setting_.rings_samples()) all[0].samples.announce();
        ghost.content[number - setting_.origin] = id;
        ghost.lent[--ghost.lent_count] = 0;
        ghost.lent_id[ghost.lent_count] = 0;
        keep_order(ghost, order, setting_.origin);
    }

    void give_back(All& all, ServiceGhost& ghost) {
        if (ghost.lent_count == 0) return;
        SampleOrder order = order_of(ghost, setting_.origin);
        all[0].samples.give_back(order, ghost.lent[ghost.lent_count - 1u]);
        ghost.lent[--ghost.lent_count] = 0;
        ghost.lent_id[ghost.lent_count] = 0;
        keep_order(ghost, order, setting_.origin);
    }

    bool run(All& all, ServiceGhost& ghost) {
        if (ghost.runs != 0) return false;
        u64 word = 0;
        const u32 place = all[0].calls.run(ghost.last_place, word);
        if (place == Calls<ModelMemory>::kNone) return false;
        ghost.last_place = ghost.run_place = static_cast<u8>(place);
        ghost.run_owner = static_cast<u8>(call_owner(word));
        ghost.run_number = static_cast<u8>(call_number(word) - setting_.config.first_call);
        ghost.runs = 1;
        ghost.phase = kRead;
        return true;
    }
    void read_request(ServiceGhost& ghost, ModelMemory& memory) {
        const u64 id = memory.plain_read(setting_.request(ghost.run_place));
        if (id == 0 || id > setting_.call_ids) throw Violation("content", "not a request");
        ghost.run_id = static_cast<u8>(id);
        ghost.runs = 2;
        const u8 bit = static_cast<u8>(1u << (id - 1));
        if ((ghost.ran & bit) != 0) throw Violation("M1", text_of("call ", id, " runs twice"));
        ghost.ran |= bit;
    }
    void answer(All& all, ServiceGhost& ghost, ModelMemory& memory) {
        if (ghost.runs != 2) return;
        memory.plain_write(setting_.response(ghost.run_place), kResponse + ghost.run_id);
        all[0].calls.answer(ghost.run_place,
                            call_word(CallState::running, ghost.run_owner,
                                      setting_.config.first_call + ghost.run_number));
        if (setting_.rings_responses()) ring_bell(memory, setting_.words.bell());
        ghost.runs = ghost.run_place = ghost.run_owner = ghost.run_number = ghost.run_id = 0;
    }
    void wait_run(All& all, ServiceGhost& ghost, ModelMemory& memory) {
        if (ghost.phase == kRead) {
            read_request(ghost, memory);
            next(ghost);
        } else if (ghost.phase == kStart) {
            ghost.bell = listen_to(memory, setting_.provider_bell);
            ghost.phase = kLook;
        } else if (ghost.phase == kLook) {
            if (run(all, ghost)) {
                ghost.bell = 0;
            } else {
                ghost.phase = kSleep;
            }
        } else {
            sleep(ghost, memory, setting_.provider_bell);
        }
    }

    // ---- proxies and the tracer

    void subscribe(All& all, ServiceGhost& ghost, unsigned me, u32 samples) {
        if (ghost.granted != 0) return;
        const Subscribing result =
            all[0].logs.subscribe(me, samples, [&] { return all.reap(0, me, [](u32) {}); });
        ghost.refused = static_cast<u8>(result);
        if (result != Subscribing::ok) return;
        ghost.granted = static_cast<u8>(samples);
        const u64 newest = all[0].samples.newest();
        ghost.last = static_cast<u8>(newest < setting_.origin ? 0 : newest - setting_.origin);
        if (me == setting_.slots.tracer()) all[0].samples.release_strays(newest);
    }

    // False: there is nothing new, or no room.
    bool take(All& all, ServiceGhost& ghost, unsigned me, u32 most) {
        u32 count = u32{ghost.granted} - ghost.held_count;
        if (most != 0) count = std::min(count, most);
        if (count == 0) return false;
        const u64 last = setting_.origin + ghost.last;
        std::array<TakenSample, kHeldMax> out{};
        u32 taken = 0;
        Taking result;
        if (me == setting_.slots.tracer()) {
            result = all[0].samples.next_traced(last, out[0]);
            taken = result == Taking::ok;
        } else {
            // The newest of a new element with a late origin was published before.
            result = all[0].samples.take(me, last, count, out.data(), taken);
        }
        if (result == Taking::corrupt) corrupt(all[0].samples.fault);
        if (result == Taking::overtaken) throw Violation("overtaken", "more often than published");
        if (result == Taking::empty) return false;
        if (taken == 0 || taken > count) throw Violation("count", "not as many as asked for");
        for (u32 i = 0; i < taken; ++i) {
            const u64 number = out[i].sequence - setting_.origin;
            if (number <= ghost.last)
                throw Violation("order",
                                text_of("number ", number, " was taken after ", int{ghost.last}));
            ghost.held[ghost.held_count] = static_cast<u8>(out[i].sample);
            ghost.held_number[ghost.held_count++] = static_cast<u8>(number);
            ghost.last = static_cast<u8>(number);
        }
        ghost.phase = kRead;
        return true;
    }
    // Reads the next one. True: all are read.
    bool read(ServiceGhost& ghost, ModelMemory& memory) {
        u32 i = 0;
        while (ghost.held_id[i] != 0) ++i;
        const u32 sample = ghost.held[i];
        const u64 id = memory.plain_read(setting_.content(sample));
        const u32 length = memory.load(setting_.words.length(sample), std::memory_order_relaxed);
        if (id == 0 || id != length)
            throw Violation("V2", text_of("sample ", sample, " has content ", id,
                                          " and the length of ", length));
        ghost.held_id[i] = static_cast<u8>(id);
        u8& known = ghost.content[ghost.held_number[i]];
        if (known != 0 && known != id) throw Violation("V2", "a number has two contents");
        known = static_cast<u8>(id);
        return i + 1u == ghost.held_count;
    }
    void wait_take(All& all, ServiceGhost& ghost, ModelMemory& memory, unsigned me, u32 most) {
        if (ghost.phase == kRead) {
            if (read(ghost, memory)) next(ghost);
        } else if (ghost.granted == ghost.held_count) {
            next(ghost);
        } else if (ghost.phase == kStart) {
            ghost.bell = listen_to(memory, setting_.words.bell());
            ghost.phase = kLook;
        } else if (ghost.phase == kLook) {
            if (take(all, ghost, me, most)) {
                ghost.bell = 0;
            } else {
                ghost.phase = kSleep;
            }
        } else {
            sleep(ghost, memory, setting_.words.bell());
        }
    }
    void release(All& all, ServiceGhost& ghost, unsigned me) {
        all[0].samples.release(me, ghost.held[0]);
        for (u32 i = 1; i < kHeldMax; ++i) {
            ghost.held[i - 1] = ghost.held[i];
            ghost.held_number[i - 1] = ghost.held_number[i];
            ghost.held_id[i - 1] = ghost.held_id[i];
        }
        ghost.held.back() = ghost.held_number.back() = ghost.held_id.back() = 0;
        --ghost.held_count;
    }
    void unsubscribe(All& all, ServiceGhost& ghost, unsigned me) {
        if (ghost.granted == 0) return;
        while (ghost.held_count != 0) release(all, ghost, me);
        if (me == setting_.slots.tracer()) all[0].samples.clear_holder(me);
        all[0].logs.leave(me);
        ghost.granted = ghost.last = 0;
    }

    // ---- calls

    CallTicket ticket_of(const ServiceGhost& ghost, unsigned me) const {
        return {ghost.ticket_place, call_word(CallState::claimed, me,
                                              setting_.config.first_call + ghost.ticket_number)};
    }
    static void end_call(ServiceGhost& ghost) {
        ghost.ticket = ghost.ticket_place = ghost.ticket_number = ghost.ticket_id = ghost.caller =
            0;
    }

    void call(All& all, ServiceGhost& ghost, ModelMemory& memory, unsigned me, u32 id) {
        auto& calls = all[0].calls;
        if (ghost.ticket == 0) {
            CallTicket ticket;
            bool claimed = calls.claim(me, ticket);
            if (!claimed) {
                reap_all(all, me);
                claimed = calls.claim(me, ticket);
            }
            if (!claimed) {
                next(ghost);
                return;
            }
            ghost.ticket = 1;
            ghost.ticket_place = static_cast<u8>(ticket.place);
            ghost.ticket_number =
                static_cast<u8>(call_number(ticket.word) - setting_.config.first_call);
            ghost.ticket_id = static_cast<u8>(id);
            ghost.caller = static_cast<u8>(me);
            if (call_number(ticket.word) <= setting_.config.first_call)
                throw Violation("limit", "the number of a call begins anew");
            return;
        }
        if (ghost.ticket == 2) {  // one call at a time
            next(ghost);
            return;
        }
        memory.plain_write(setting_.request(ghost.ticket_place), id);
        if (!calls.submit(ticket_of(ghost, me)))
            throw Violation("gone", "the place of a call that was claimed is another's");
        if (setting_.rings_calls()) ring_bell(memory, setting_.provider_bell);
        ghost.ticket = 2;
        next(ghost);
    }
    // False: it is not complete.
    bool collect(All& all, ServiceGhost& ghost, ModelMemory& memory) {
        auto& calls = all[0].calls;
        const CallTicket ticket = ticket_of(ghost, ghost.caller);
        switch (calls.look(ticket)) {
            case CallLook::waiting:
            case CallLook::running:
                return false;
            case CallLook::gone:
                throw Violation("gone", "the word of a call is another call's");
            case CallLook::failed:
                calls.collect(ticket, CallState::failed);
                ghost.failed |= bit_of(ghost);
                break;
            case CallLook::done:
                take_response(all, ghost, memory);
                break;
        }
        end_call(ghost);
        return true;
    }
    void take_response(All& all, ServiceGhost& ghost, ModelMemory& memory) {
        const u64 found = memory.plain_read(setting_.response(ghost.ticket_place));
        if (found != kResponse + ghost.ticket_id)
            throw Violation("M2", text_of("call ", int{ghost.ticket_id}, " gets response ", found));
        all[0].calls.collect(ticket_of(ghost, ghost.caller), CallState::done);
        ghost.answered |= bit_of(ghost);
    }
    static u8 bit_of(const ServiceGhost& ghost) {
        return static_cast<u8>(1u << (ghost.ticket_id - 1));
    }
    void wait_collect(All& all, ServiceGhost& ghost, ModelMemory& memory) {
        if (ghost.ticket == 0) {
            next(ghost);
        } else if (ghost.phase == kStart) {
            ghost.bell = listen_to(memory, setting_.words.bell());
            ghost.phase = kLook;
        } else if (ghost.phase == kLook) {
            if (collect(all, ghost, memory)) {
                next(ghost);
            } else {
                ghost.phase = kSleep;
            }
        } else {
            sleep(ghost, memory, setting_.words.bell());
        }
    }
    void withdraw(All& all, ServiceGhost& ghost, ModelMemory& memory, bool asks_kernel) {
        if (ghost.ticket == 0) return;
        const bool dead = asks_kernel && memory.take_byte(setting_.slots.provider());
        const Withdrawn result = all[0].calls.withdraw(ticket_of(ghost, ghost.caller), dead);
        if (dead) memory.drop_byte(setting_.slots.provider());
        if (result == Withdrawn::unexecuted) ghost.unexecuted |= bit_of(ghost);
        if (result == Withdrawn::running) ghost.failed |= bit_of(ghost);
        if (result == Withdrawn::done) take_response(all, ghost, memory);
        end_call(ghost);
    }

    void sleep(ServiceGhost& ghost, ModelMemory& memory, u32* bell) {
        memory.wait(bell, ghost.bell);
        ghost.bell = 0;
        ghost.phase = kStart;
    }

    ServiceSetting setting_;
};

}  // namespace model
