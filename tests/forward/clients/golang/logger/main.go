// A client with github.com/fluent/fluent-logger-golang, which Docker's log driver is built on.
package main

import (
	"time"

	"github.com/fluent/fluent-logger-golang/fluent"
	"headrace/tests/forward/clients/order"
)

func send(order order.Order) error {
	config := fluent.Config{
		FluentNetwork: order.Network, FluentHost: order.Host, FluentPort: order.Port,
		RequestAck: order.Ack, MarshalAsJSON: order.JSON, Async: order.Async, SubSecondPrecision: order.SubSecond,
		TlsInsecureSkipVerify: true, BufferLimit: order.Count + 1,
	}
	sender, err := fluent.New(config)
	if err != nil {
		return err
	}
	for n := 0; n < order.Count; n++ {
		if err := sender.PostWithTime(order.Tag, time.Now(), order.Record(n)); err != nil {
			return err
		}
	}
	return sender.Close()
}

func main() {
	order.Run(send)
}
