// Clients in pods, with libraries that the project did not write: fluent-logger-golang, which Docker's log driver is built on, and
// go-lumber's client, the library inside Beats. Each sends until SIGTERM, and what was not acknowledged again. Prints what it did, as
// JSON, as ../traffic.py does.
//
//	clients forward|lumberjack host port first
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	v2 "github.com/elastic/go-lumber/client/v2"
	"github.com/fluent/fluent-logger-golang/fluent"
)

const (
	events   = 50
	pause    = 50 * time.Millisecond
	patience = 20 * time.Second
	again    = 200 * time.Millisecond
)

// A sender sends events from a number on until they are acknowledged, and says how many.
type sender func(number int) int

func event(number int) map[string]interface{} {
	return map[string]interface{}{"n": number, "message": fmt.Sprintf("GET /cart/%d ü", number)}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The library sends an event again, over a new connection, until it is acknowledged. Its chunk ids begin with the event's time, by which
// they are told from hashes: it is the present, so that what is sent again is known again. Its waits grow by half each time; after
// 107 attempts they overflow, and it may wait for ever.
func forward(host string, port int) sender {
	client, err := fluent.New(fluent.Config{
		FluentHost: host, FluentPort: port, RequestAck: true, ReadTimeout: patience, WriteTimeout: patience, Timeout: patience,
		MaxRetry: 105, RetryWait: 1, MaxRetryWait: 3000,
	})
	check(err)
	return func(number int) int {
		check(client.Post("shop", event(number)))
		return 1
	}
}

// A Beat connects again and sends again what was not acknowledged, as this does.
func lumberjack(host string, port int, told map[string]int) sender {
	var client *v2.SyncClient
	address := net.JoinHostPort(host, strconv.Itoa(port))
	return func(number int) int {
		batch := make([]interface{}, events)
		for index := range batch {
			batch[index] = event(number + index)
		}
		for sent := 0; sent < events; {
			if client == nil {
				opened, err := v2.SyncDial(address, v2.Timeout(patience))
				if err != nil {
					told["refused"]++
					time.Sleep(again)
					continue
				}
				told["connections"]++
				client = opened
			}
			count, err := client.Send(batch[sent:])
			sent += count
			if err != nil {
				told["broken"]++
				client.Close()
				client = nil
				time.Sleep(again)
			}
		}
		return events
	}
}

func main() {
	protocol, host := os.Args[1], os.Args[2]
	port, err := strconv.Atoi(os.Args[3])
	check(err)
	first, err := strconv.Atoi(os.Args[4])
	check(err)
	told := map[string]int{}
	send := map[string]func() sender{
		"forward":    func() sender { return forward(host, port) },
		"lumberjack": func() sender { return lumberjack(host, port, told) },
	}[protocol]()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	number, longest := first, time.Duration(0)
	for len(stop) == 0 {
		began := time.Now()
		number += send(number)
		longest = max(longest, time.Since(began))
		time.Sleep(pause)
	}
	said := map[string]interface{}{"acknowledged": number - first, "longest_wait": float64(longest.Milliseconds()) / 1000}
	for name, times := range told {
		said[name] = times
	}
	check(json.NewEncoder(os.Stdout).Encode(said))
}
