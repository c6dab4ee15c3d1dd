// Package order is what the tests ask a client to send, as JSON in its single argument.
package order

import (
	"encoding/json"
	"fmt"
	"os"
)

// Order says what to send, and how.
type Order struct {
	Mode             string
	Network          string // tcp or tls
	Host             string
	Port, Count      int
	Tag, Mark        string
	Ack, JSON, Async bool
	SubSecond        bool
	SharedKey        string
	Hostname         string
	Batch            int
	Again            bool // what could not be sent is sent once more
}

// Record is the event of number n.
func (order Order) Record(n int) map[string]interface{} {
	return map[string]interface{}{"mark": order.Mark, "n": n, "text": fmt.Sprintf("line %d – ü", n)}
}

// Run does what it is asked, and exits with an error if it was told of one.
func Run(work func(Order) error) {
	var order Order
	err := json.Unmarshal([]byte(os.Args[1]), &order)
	if err == nil {
		err = work(order)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
